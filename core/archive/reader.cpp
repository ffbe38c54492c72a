#include "core/archive/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/loss.h"
#include "core/archive/archive_place.h"
#include "core/archive/archived_json.h"
#include "core/archive/hdf5.h"
#include "core/archive/hdf5_input.h"
#include "core/base/system_error.h"

namespace consist {

using hdf5::Handle;

struct ArchiveReader::File {
  std::string path;
  Handle file;
  bool unlocked = false;  // no run had the file locked before anything was read of it

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError("the archive " + path + " is damaged: cannot read " + what + ": " + hdf5::last_error());
  }
  Handle own(hid_t id, Handle::Close close, const std::string& what) const {
    if (id < 0) fail(what);
    return {id, close};
  }
  Handle dataset(const std::string& name) const { return own(H5Dopen2(file.id(), name.c_str(), H5P_DEFAULT), H5Dclose, name); }

  hsize_t length(const std::string& name) const {
    const Handle set = dataset(name);
    const Handle space = own(H5Dget_space(set.id()), H5Sclose, name);
    hsize_t rows = 0;
    if (H5Sget_simple_extent_ndims(space.id()) != 1 || H5Sget_simple_extent_dims(space.id(), &rows, nullptr) != 1) fail(name);
    return rows;
  }

  /// The first `rows` elements.
  void read(const std::string& name, hid_t type, hsize_t rows, void* out) const {
    if (rows == 0) return;
    const Handle set = dataset(name);
    const Handle space = own(H5Dget_space(set.id()), H5Sclose, name);
    const Handle memory = own(H5Screate_simple(1, &rows, nullptr), H5Sclose, name);
    const hsize_t start = 0;
    if (H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, &start, nullptr, &rows, nullptr) < 0 ||
        H5Dread(set.id(), type, memory.id(), space.id(), H5P_DEFAULT, out) < 0) {
      fail(name);
    }
  }

  std::vector<std::string> fixed_strings(const std::string& name, hsize_t rows) const {
    const Handle set = dataset(name);
    const Handle type = own(H5Dget_type(set.id()), H5Tclose, name);
    if (H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) > 0) fail(name);
    const std::size_t bytes = H5Tget_size(type.id());
    std::vector<char> raw(bytes * rows);
    read(name, type.id(), rows, raw.data());
    std::vector<std::string> out;
    for (hsize_t i = 0; i < rows; ++i) out.emplace_back(&raw[i * bytes], ::strnlen(&raw[i * bytes], bytes));
    return out;
  }

  std::string attribute(hid_t object, const char* name) const {
    const Handle found = own(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, std::string("the attribute ") + name);
    const Handle type = own(H5Aget_type(found.id()), H5Tclose, name);
    const Handle space = own(H5Aget_space(found.id()), H5Sclose, name);
    if (H5Tget_class(type.id()) != H5T_STRING || !hdf5::is_single(space)) fail(std::string("the attribute ") + name);
    if (H5Tis_variable_str(type.id()) > 0) {
      char* value = nullptr;
      if (H5Aread(found.id(), hdf5::string_type().id(), &value) < 0) fail(std::string("the attribute ") + name);
      std::string text = value == nullptr ? "" : value;
      H5free_memory(value);
      return text;
    }
    std::vector<char> raw(H5Tget_size(type.id()));
    if (H5Aread(found.id(), type.id(), raw.data()) < 0) fail(std::string("the attribute ") + name);
    return {raw.data(), ::strnlen(raw.data(), raw.size())};
  }

  std::string text(const std::string& name) const {
    if (!has(name)) return {};
    const Handle set = dataset(name);
    return hdf5::read_string(set.id(), path, name);
  }

  /// True if the run ended without recording its end. False for a run of another host, whose lock may be invisible here.
  bool cut_off() const {
    if (!unlocked || attribute(file.id(), "status") != "running") return false;
    const auto environment = archived_json(text("/environment"));
    return environment.is_object() && environment.value("host", nlohmann::json()) == network::host_name();
  }

  bool has(const std::string& name) const { return H5Lexists(file.id(), name.c_str(), H5P_DEFAULT) > 0; }

  /// Names of the datasets of a group, in alphabetical order.
  std::vector<std::string> names_in(const std::string& path) const {
    if (!has(path)) return {};
    const Handle group = own(H5Gopen2(file.id(), path.c_str(), H5P_DEFAULT), H5Gclose, "/" + path);
    std::vector<std::string> names;
    const auto add = [](hid_t, const char* name, const H5L_info_t*, void* into) -> herr_t {
      static_cast<std::vector<std::string>*>(into)->emplace_back(name);
      return 0;
    };
    if (H5Literate(group.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names) < 0) fail("/" + path);
    return names;
  }
  std::vector<std::string> columns() const { return names_in("steps"); }

  /// Rows that every column has in full. A writer that was killed may leave columns of different lengths, and a last "step" of
  /// -1: a row that was counted but whose chunk is not in the file.
  hsize_t complete_rows() const {
    const std::vector<std::string> names = columns();
    if (names.empty()) return 0;
    hsize_t rows = length("steps/step");
    for (const std::string& name : names) rows = std::min(rows, length("steps/" + name));
    std::vector<std::int64_t> steps(rows);
    read("steps/step", H5T_NATIVE_INT64, rows, steps.data());
    while (rows > 0 && steps[rows - 1] < 0) --rows;
    return rows;
  }
};

ArchiveReader::ArchiveReader(const std::string& path) : path_(path), file_(std::make_unique<File>()) {
  const Descriptor asked(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!asked) throw SystemError("cannot read the archive " + path + ": " + system_error_text(errno));
  // Before HDF5 reads anything: a run that ends after this may or may not have its end in what is read, but it had the lock.
  const bool unlocked = lock_of(asked.fd()) == ArchiveLock::free;
  const hdf5::Session session;
  file_->path = path;
  file_->file = hdf5::open_input(path);
  struct stat first {
  }, named{};
  // Another archive may have come in its place meanwhile.
  file_->unlocked =
      unlocked && ::fstat(asked.fd(), &first) == 0 && ::stat(path.c_str(), &named) == 0 && first.st_ino == named.st_ino;
  const Handle version(H5Aopen(file_->file.id(), "consist_archive_version", H5P_DEFAULT), H5Aclose);
  if (!version) throw DataError(path + " is an HDF5 file, but no archive of a run: it has no attribute consist_archive_version");
  const Handle type(H5Aget_type(version.id()), H5Tclose), space(H5Aget_space(version.id()), H5Sclose);
  if (H5Tget_class(type.id()) != H5T_INTEGER || !hdf5::is_single(space) || H5Aread(version.id(), H5T_NATIVE_INT32, &version_) < 0)
    file_->fail("the attribute consist_archive_version");
  if (version_ < 1 || version_ > archive_version) {
    throw DataError(path + " is an archive of version " + std::to_string(version_) + "; this program reads versions 1 to " +
                    std::to_string(archive_version));
  }
}

ArchiveReader::~ArchiveReader() = default;

std::string ArchiveReader::status() const {
  const hdf5::Session session;
  return file_->cut_off() ? "cut off" : file_->attribute(file_->file.id(), "status");
}

std::string ArchiveReader::reason() const {
  const hdf5::Session session;
  return file_->cut_off() ? "its process ended without closing the archive: it was killed, crashed, or called _exit()"
                          : file_->attribute(file_->file.id(), "reason");
}

std::string ArchiveReader::text(const std::string& path) const {
  const hdf5::Session session;
  return file_->text(path);
}

std::string ArchiveReader::packed_text(const std::string& path) const {
  const hdf5::Session session;
  if (!file_->has(path)) return {};
  std::string text(file_->length(path), ' ');
  file_->read(path, H5T_NATIVE_UINT8, text.size(), text.data());
  return text;
}

std::vector<std::string> ArchiveReader::columns() const {
  const hdf5::Session session;
  return file_->columns();
}

std::string ArchiveReader::unit(const std::string& column) const {
  const hdf5::Session session;
  return file_->attribute(file_->dataset("steps/" + column).id(), "units");
}

std::string ArchiveReader::loss_unit() const {
  const hdf5::Session session;
  for (const char* group : {"steps", "evaluations"}) {
    const std::string loss = std::string(group) + "/loss";
    if (!file_->has(group) || !file_->has(loss)) continue;
    const Handle column = file_->dataset(loss);
    const std::string unit = H5Aexists(column.id(), "units") > 0 ? file_->attribute(column.id(), "units") : "";
    if (!unit.empty()) return unit;
  }
  return Loss::default_unit;
}

std::vector<double> ArchiveReader::column(const std::string& name) const {
  const hdf5::Session session;
  if (!file_->has("steps") || !file_->has("steps/" + name)) {
    std::string found;
    for (const std::string& other : file_->columns()) found += (found.empty() ? "" : ", ") + other;
    throw DataError("the archive " + path_ + " has no column " + name + "; it has: " + (found.empty() ? "none" : found));
  }
  std::vector<double> values(file_->complete_rows());
  file_->read("steps/" + name, H5T_NATIVE_DOUBLE, values.size(), values.data());
  return values;
}

std::vector<ArchivedEvaluation> ArchiveReader::evaluations() const {
  const hdf5::Session session;
  if (!file_->has("evaluations")) return {};
  constexpr std::array<std::string_view, 5> known{"step", "loss", "sequences", "seconds", "time"};
  std::vector<std::string> names = file_->names_in("evaluations");
  if (names.empty()) return {};
  hsize_t rows = std::numeric_limits<hsize_t>::max();
  for (const std::string& name : names) rows = std::min(rows, file_->length("evaluations/" + name));
  const auto column = [&]<typename Value>(const std::string& name, hid_t type, Value /*of one row*/) {
    std::vector<Value> values(rows);
    file_->read("evaluations/" + name, type, rows, values.data());
    return values;
  };
  const auto whole = [&](const char* name) { return column(name, H5T_NATIVE_INT64, std::int64_t{0}); };
  const auto real = [&](const std::string& name) { return column(name, H5T_NATIVE_DOUBLE, 0.0); };
  const std::vector<std::int64_t> step = whole("step"), sequences = whole("sequences");
  const std::vector<double> loss = real("loss"), seconds = real("seconds"), time = real("time");
  std::erase_if(names, [&](const std::string& name) { return std::ranges::find(known, name) != known.end(); });
  std::vector<std::vector<double>> own;  // by name
  for (const std::string& name : names) own.push_back(real(name));
  std::vector<ArchivedEvaluation> evaluations;
  for (hsize_t i = 0; i < rows && step[i] >= 0; ++i) {
    evaluations.push_back({.step = step[i], .loss = loss[i], .sequences = sequences[i], .seconds = seconds[i], .time = time[i]});
    for (std::size_t k = 0; k < names.size(); ++k) evaluations.back().metrics.push_back({names[k], own[k][i]});
  }
  return evaluations;
}

std::vector<ArchivedChoices> ArchiveReader::experts() const {
  const hdf5::Session session;
  if (!file_->has("experts")) return {};
  const hsize_t rows = std::min(file_->length("experts/step"), file_->length("experts/choices"));
  std::vector<std::int64_t> steps(rows);
  file_->read("experts/step", H5T_NATIVE_INT64, rows, steps.data());
  const Handle stored = file_->own(H5Dget_type(file_->dataset("experts/choices").id()), H5Tclose, "experts/choices");
  std::array<hsize_t, 2> shape{};
  if (H5Tget_class(stored.id()) != H5T_ARRAY || H5Tget_array_ndims(stored.id()) != 2 ||
      H5Tget_array_dims2(stored.id(), shape.data()) != 2)
    file_->fail("experts/choices");
  const Handle type = file_->own(H5Tarray_create2(H5T_NATIVE_INT32, 2, shape.data()), H5Tclose, "experts/choices");
  const auto width = static_cast<std::ptrdiff_t>(shape[0] * shape[1]);
  std::vector<std::int32_t> values(rows * shape[0] * shape[1]);
  file_->read("experts/choices", type.id(), rows, values.data());
  std::vector<ArchivedChoices> experts;
  for (hsize_t i = 0; i < rows && steps[i] >= 0; ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i) * width;
    experts.push_back({.step = steps[i], .choices = {begin, begin + width}, .experts = static_cast<std::size_t>(shape[1])});
  }
  return experts;
}

std::vector<double> ArchiveReader::column_if_any(const std::string& name) const {
  const std::vector<std::string> names = columns();
  return std::find(names.begin(), names.end(), name) == names.end() ? std::vector<double>{} : column(name);
}

std::vector<ArchiveEvent> ArchiveReader::events() const {
  const hdf5::Session session;
  if (!file_->has("events")) return {};
  const hsize_t rows = std::min({file_->length("events/time"), file_->length("events/kind"), file_->length("events/text")});
  std::vector<double> times(rows);
  file_->read("events/time", H5T_NATIVE_DOUBLE, rows, times.data());
  const std::vector<std::string> kinds = file_->fixed_strings("events/kind", rows);
  const std::vector<std::string> texts = file_->fixed_strings("events/text", rows);
  std::vector<ArchiveEvent> events;
  for (hsize_t i = 0; i < rows; ++i) events.push_back({times[i], kinds[i], texts[i]});
  return events;
}

}  // namespace consist
