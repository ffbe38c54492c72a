#include "launch/compare/checked_rows.h"

#include <cstdio>
#include <map>
#include <string>

#include "consist/error.h"
#include "consist/text.h"
#include "core/plan/plan.h"
#include "launch/cli/run_options.h"
#include "launch/compare/places.h"
#include "launch/compare/predicted.h"
#include "launch/compare/programs.h"

namespace consist::launch {
namespace {

class RowCheck {
 public:
  RowCheck(const CompareRequest& request, PluginHost& host) : request_(request), host_(host) {}

  CheckedRows check() {
    found_.rows = expand_rows(request_.train, [&](const std::string& name) { return list_rule(name, host_); });
    leave_out_stray_options();
    const std::size_t count = found_.rows.size();
    found_.outcomes.resize(count);
    found_.configs.resize(count);
    found_.settled.resize(count);
    std::vector<CheckedRow> legal;
    for (std::size_t i = 0; i < count; ++i) check_row(i, legal);
    const std::vector<std::size_t> first = first_of_equals(count, legal);
    if (request_.predict) {
      for (const CheckedRow& row : legal) {
        if (first[row.row] == row.row) found_.outcomes[row.row] = predicted_outcome(row.plan, host_);
      }
      for (const CheckedRow& row : legal) found_.outcomes[row.row] = found_.outcomes[first[row.row]];
    }
    for (std::size_t i = 0; i < count; ++i) {
      found_.outcomes[i].same_program_as = first[i];
      found_.outcomes[i].step_tokens = found_.settled[i].global_batch * found_.settled[i].sequence;
    }
    return std::move(found_);
  }

 private:
  /// A row's configuration, parsed once.
  const RunConfig& config_of(const CompareRow& row) {
    const auto known = parsed_.find(row.arguments);
    return known != parsed_.end() ? known->second
                                  : parsed_.emplace(row.arguments, make_config(parse_run(row.arguments), host_)).first->second;
  }

  /// Leaves out of every row the options of parts that only other rows have: `--efa.provider tcp` beside `--transport
  /// socket,efa`. Options that no row can use stay, so that they are refused, unless the file of --config states them: the
  /// command line has chosen other parts.
  void leave_out_stray_options() {
    std::vector<CompareRow>& rows = found_.rows;
    std::vector<std::vector<std::string>> stray(rows.size());
    std::map<std::string, std::size_t> strays;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      try {
        stray[i] = stray_owners(config_of(rows[i]), host_);
      } catch (const Error&) {
        continue;  // refused with its reason when it is checked
      }
      for (const std::string& owner : stray[i]) ++strays[owner];
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (const std::string& owner : stray[i]) {
        if (strays[owner] < rows.size() || request_.owners_of_file.contains(owner)) leave_out_options_of(owner, rows[i]);
      }
    }
    for (const auto& [owner, of_rows] : strays) {
      if (of_rows == rows.size() && request_.owners_of_file.contains(owner))
        std::fprintf(stderr, "--config %s: what it says of '%s' has no effect beside the command line's choices\n",
                     printable(request_.config).c_str(), printable(owner).c_str());
    }
    label_rows(rows);
  }

  void check_row(std::size_t i, std::vector<CheckedRow>& legal) {
    bool parts_exist = false;
    try {
      found_.configs[i] = config_of(found_.rows[i]);
      SelectedParts selected = select_parts(found_.configs[i], host_);
      parts_exist = true;
      if (!request_.predict) check_forced_routes(selected.config);
      Plan plan(std::move(selected), host_, {.device = nullptr, .machine = nullptr});
      found_.settled[i] = plan.config();
      legal.push_back({i, std::move(plan)});
    } catch (const Error& error) {
      found_.outcomes[i].status = "refused";
      found_.outcomes[i].reason = error.what();
      found_.misspelt |= !parts_exist && dynamic_cast<const UsageError*>(&error) != nullptr;
    }
  }

  const CompareRequest& request_;
  PluginHost& host_;
  std::map<std::vector<std::string>, RunConfig> parsed_;  ///< by the arguments of rows
  CheckedRows found_;
};

}  // namespace

CheckedRows check_rows(const CompareRequest& request, PluginHost& host) {
  return RowCheck(request, host).check();
}

}  // namespace consist::launch
