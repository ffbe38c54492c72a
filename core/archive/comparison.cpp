#include "core/archive/comparison.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>

#include "consist/error.h"
#include "consist/files.h"
#include "core/archive/hdf5.h"
#include "core/archive/hdf5_input.h"

namespace consist {
namespace {

using hdf5::Handle;

class ComparisonFile {
 public:
  explicit ComparisonFile(std::string path) : path_(std::move(path)) {
    const Handle access = hdf5::file_access();
    file_ = own(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), H5Fclose);
    const std::int32_t version = 1;
    const Handle space = own(H5Screate(H5S_SCALAR), H5Sclose);
    const Handle made = own(
        H5Acreate2(file_.id(), "consist_comparison_version", H5T_NATIVE_INT32, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    check(H5Awrite(made.id(), H5T_NATIVE_INT32, &version));
    summary_ = group("summary");
    runs_ = group("runs");
  }

  void link(const std::string& label, const std::string& archive) {
    check(H5Lcreate_external(archive.c_str(), "/", runs_.id(), label.c_str(), H5P_DEFAULT, H5P_DEFAULT));
  }

  void column(const ComparisonColumn& column, const std::vector<double>& values) {
    const Handle made = dataset(column, H5T_IEEE_F64LE, values.size());
    check(H5Dwrite(made.id(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  }

  void column(const ComparisonColumn& column, const std::vector<std::string>& values) {
    const Handle type = hdf5::string_type();
    std::vector<const char*> pointers;
    for (const std::string& value : values) pointers.push_back(value.c_str());
    const Handle made = dataset(column, type.id(), values.size());
    check(H5Dwrite(made.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()));
  }

  void close() {
    summary_.reset();
    runs_.reset();
    if (!file_.reset()) check(-1);
  }

 private:
  template <typename Result>
  Result check(Result result) {
    if (result < 0) throw SystemError("cannot write the comparison " + path_ + ": " + hdf5::last_error());
    return result;
  }
  Handle own(hid_t id, Handle::Close close) { return {check(id), close}; }

  /// A group whose members are listed in the order in which they were added.
  Handle group(const char* name) {
    const Handle creation = own(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
    check(H5Pset_link_creation_order(creation.id(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED));
    return own(H5Gcreate2(file_.id(), name, H5P_DEFAULT, creation.id(), H5P_DEFAULT), H5Gclose);
  }

  Handle dataset(const ComparisonColumn& column, hid_t type, hsize_t rows) {
    const Handle space = own(H5Screate_simple(1, &rows, nullptr), H5Sclose);
    Handle made =
        own(H5Dcreate2(summary_.id(), column.name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
    const Handle text = hdf5::string_type();
    const Handle scalar = own(H5Screate(H5S_SCALAR), H5Sclose);
    const Handle units = own(H5Acreate2(made.id(), "units", text.id(), scalar.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    const char* unit = column.unit.c_str();
    check(H5Awrite(units.id(), text.id(), &unit));
    return made;
  }

  std::string path_;
  Handle file_, summary_, runs_;
};

void check_rules(const std::vector<ComparisonColumn>& columns, const std::vector<ComparedRun>& runs) {
  std::set<std::string> names{"run"};
  for (const ComparisonColumn& column : columns) {
    if (column.name.empty() || column.name.find('/') != std::string::npos || !names.insert(column.name).second) {
      throw ProgramError("a comparison cannot have the column \"" + column.name + "\": empty, with \"/\", or there already");
    }
  }
  std::set<std::string> labels;
  for (const ComparedRun& run : runs) {
    if (run.label.empty() || run.label == "." || run.label.find('/') != std::string::npos || !labels.insert(run.label).second) {
      throw ProgramError("a comparison cannot have a run labelled \"" + run.label + "\": empty, with \"/\", or there already");
    }
    if (run.values.size() != columns.size()) {
      throw ProgramError("the run " + run.label + " has " + std::to_string(run.values.size()) + " values for " +
                         std::to_string(columns.size()) + " columns");
    }
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (run.values[c].index() != runs.front().values[c].index()) {
        throw ProgramError("the column " + columns[c].name + " holds numbers and texts at once");
      }
    }
  }
}

std::string relative_to(const std::filesystem::path& folder, const std::string& archive) {
  return std::filesystem::absolute(archive).lexically_normal().lexically_relative(folder).string();
}

template <typename Value>
std::vector<Value> cells(const std::vector<ComparedRun>& runs, std::size_t column) {
  std::vector<Value> values;
  for (const ComparedRun& run : runs) values.push_back(std::get<Value>(run.values[column]));
  return values;
}

}  // namespace

void write_comparison(const std::string& path, const std::vector<ComparisonColumn>& columns,
                      const std::vector<ComparedRun>& runs) {
  check_rules(columns, runs);
  AtomicFile whole(path);
  const std::filesystem::path folder = std::filesystem::absolute(path).lexically_normal().parent_path();
  {
    const hdf5::Session session;
    ComparisonFile file(whole.partial_path());
    std::vector<std::string> labels;
    for (const ComparedRun& run : runs) {
      labels.push_back(run.label);
      if (run.archive.empty()) continue;
      file.link(run.label, relative_to(folder, run.archive));
      for (const auto& [label, archive] : run.repeats) file.link(label, relative_to(folder, archive));
    }
    file.column({"run", ""}, labels);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (!runs.empty() && std::holds_alternative<std::string>(runs.front().values[c])) {
        file.column(columns[c], cells<std::string>(runs, c));
      } else {
        file.column(columns[c], cells<double>(runs, c));
      }
    }
    file.close();
  }
  whole.commit();
}

namespace {

bool is_marked(const Handle& file) {
  return H5Aexists(file.id(), "consist_comparison_version") > 0;
}

}  // namespace

bool is_comparison(const std::string& path) {
  const hdf5::Session session;
  try {
    return is_marked(hdf5::open_input(path));
  } catch (const DataError&) {
    return false;
  }
}

std::vector<std::pair<std::string, std::string>> linked_archives(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0) throw SystemError("cannot read " + path + ": " + std::strerror(errno));
  const hdf5::Session session;
  const Handle file = hdf5::open_input(path);
  if (!is_marked(file)) return {};
  const Handle group(H5Gopen2(file.id(), "runs", H5P_DEFAULT), H5Gclose);
  if (!group) throw DataError(path + " is damaged: cannot read /runs: " + hdf5::last_error());
  struct Found {
    std::vector<std::pair<std::string, std::string>> links;
    std::filesystem::path folder;
  } found{{}, std::filesystem::absolute(path).parent_path()};
  const auto add = [](hid_t in, const char* name, const H5L_info_t* info, void* into) -> herr_t {
    if (info->type != H5L_TYPE_EXTERNAL) return 0;
    std::vector<char> value(info->u.val_size);
    const char *archive = nullptr, *object = nullptr;
    unsigned flags = 0;
    if (H5Lget_val(in, name, value.data(), value.size(), H5P_DEFAULT) < 0 ||
        H5Lunpack_elink_val(value.data(), value.size(), &flags, &archive, &object) < 0) {
      return -1;
    }
    auto* all = static_cast<Found*>(into);
    all->links.emplace_back(name, (all->folder / archive).lexically_normal().string());
    return 0;
  };
  hsize_t at = 0;
  if (H5Literate(group.id(), H5_INDEX_CRT_ORDER, H5_ITER_INC, &at, add, &found) < 0)
    throw DataError(path + " is damaged: cannot read /runs: " + hdf5::last_error());
  return found.links;
}

}  // namespace consist
