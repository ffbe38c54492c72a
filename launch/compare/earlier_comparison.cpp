#include "launch/compare/earlier_comparison.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/text.h"
#include "core/archive/comparison.h"

namespace consist::launch {
namespace {

namespace fs = std::filesystem;

fs::path whole(const std::string& path) {
  std::error_code ignored;
  return fs::weakly_canonical(fs::absolute(path), ignored);
}

/// The archives that --add names, those of comparisons one by one.
std::set<fs::path> archives_of(std::span<const std::string> added) {
  std::set<fs::path> archives;
  for (const std::string& path : added) {
    archives.insert(whole(path));
    for (const auto& [label, archive] : linked_archives(path)) archives.insert(whole(archive));
  }
  return archives;
}

bool is_of_row(const std::string& label, const CompareRow& row) {
  return label == row.label || label.starts_with(row.label + ".repeat");
}

}  // namespace

void check_summary(const std::string& path, bool overwrite, std::span<const CompareRow> rows,
                   std::span<const std::string> added) {
  const Output output{.option = "--output", .path = path, .overwrite = true};
  if (check_output(output)) throw UsageError("--output: " + path + " is no regular file; give another folder");
  std::error_code ignored;
  if (overwrite || !fs::exists(path, ignored)) return;
  if (!is_comparison(path))
    throw UsageError("--output: " + path +
                     " is there already and is no comparison; give another folder, or replace it with --overwrite");
  if (std::any_of(added.begin(), added.end(), [&](const std::string& archive) { return whole(archive) == whole(path); }))
    throw UsageError("--add " + path + " is the file that this comparison writes; give another folder with --output");
  const std::set<fs::path> kept = archives_of(added);
  const fs::path folder = whole(path).parent_path();
  std::vector<std::string> lost;
  for (const auto& [label, archive] : linked_archives(path)) {
    const fs::path run = whole(archive);
    const bool is_row =
        std::any_of(rows.begin(), rows.end(), [&, &label = label](const CompareRow& row) { return is_of_row(label, row); });
    if (!is_row && run.parent_path() == folder && fs::exists(run, ignored) && !kept.contains(run)) lost.push_back(label);
  }
  if (lost.empty()) return;
  throw UsageError("--output: " + path + " compares " + in_quotes(lost.front()) +
                   (lost.size() > 1 ? " and " + std::to_string(lost.size() - 1) + " more" : "") +
                   ", which this comparison does not have. Give another folder (with --add " + path +
                   " they stand beside these rows), or --overwrite to leave them out of it");
}

}  // namespace consist::launch
