#include "core/archive/archive_file.h"

#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "consist/error.h"
#include "consist/loss.h"
#include "core/base/output_place.h"

namespace consist {
namespace {

using hdf5::Handle;

constexpr hsize_t kPackedChunk = 65536;  // bytes of a text
constexpr unsigned kPackedLevel = 6;
constexpr hsize_t kFenceBytes = 8192;
constexpr unsigned kIndexWidth = 128;
constexpr std::array kTexts = {"/config", "/environment", "/topology", "/program",   "/start",
                               "/comm",   "/result",      "/profile",  "/evaluation"};
constexpr std::array kPackedTexts = {"/timeline", "/programs"};

}  // namespace

void Archive::File::fail(const std::string& what) {
  broken = true;
  throw SystemError("cannot " + what + " in the archive " + path + ": " + hdf5::last_error());
}

void Archive::File::require_open() const {
  if (!file) throw ProgramError("the archive " + path + " is written to after finish()");
  if (broken) throw SystemError("the archive " + path + " takes no more data: an earlier write failed");
}

Archive::File::Series Archive::File::series(hid_t parent, const std::string& name, hid_t stored, hid_t in_memory, hsize_t chunk,
                                            const void* fill) {
  const hsize_t none = 0;
  const hsize_t one = 1;
  const hsize_t unlimited = H5S_UNLIMITED;
  const Handle space = own(H5Screate_simple(1, &one, &unlimited), H5Sclose, "describe a column");
  const Handle creation = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "describe a column");
  check(H5Pset_chunk(creation.id(), 1, &chunk), "describe a column");
  check(H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY), "describe a column");
  if (fill != nullptr) check(H5Pset_fill_value(creation.id(), in_memory, fill), "describe a column");
  const Handle access = own(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose, "describe a column");
  check(H5Pset_chunk_cache(access.id(), 1, static_cast<std::size_t>(chunk) * H5Tget_size(stored), 0.0), "describe a column");
  Series made;
  made.chunk_bytes = chunk * H5Tget_size(stored);
  made.dataset = own(H5Dcreate2(parent, name.c_str(), stored, space.id(), H5P_DEFAULT, creation.id(), access.id()), H5Dclose,
                     "create a column");
  made.type = own(H5Tcopy(in_memory), H5Tclose, "create a column");
  // The row that it began with made HDF5 allocate the index of chunks, which stays: now, and not with the first step.
  check(H5Dset_extent(made.dataset.id(), &none), "create a column");
  return made;
}

Handle Archive::File::nameless(hsize_t bytes) {
  const Handle space = own(H5Screate_simple(1, &bytes, nullptr), H5Sclose, "reserve space");
  const Handle creation = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "reserve space");
  check(H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY), "reserve space");
  Handle made =
      own(H5Dcreate_anon(file.id(), H5T_NATIVE_UINT8, space.id(), creation.id(), H5P_DEFAULT), H5Dclose, "reserve space");
  const std::vector<std::uint8_t> zeros(bytes);
  check(H5Dwrite(made.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()), "reserve space");
  return made;
}

void Archive::File::reserve(hsize_t bytes) {
  Handle room = nameless(bytes);
  // Space that is given back at the end of the file would shorten it again: something must stay behind it.
  do {
    fences.push_back(nameless(kFenceBytes));
  } while (H5Dget_offset(fences.back().id()) < H5Dget_offset(room.id()));
  flush();
  if (!room.reset()) fail("reserve space");  // now free, and taken first by what is added next
}

void Archive::File::put(Series& series, hsize_t row, const void* value) {
  const hsize_t rows_then = row + 1;
  const hsize_t one = 1;
  check(H5Dset_extent(series.dataset.id(), &rows_then), "add a row");
  const Handle space = own(H5Dget_space(series.dataset.id()), H5Sclose, "add a row");
  check(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, &row, nullptr, &one, nullptr), "add a row");
  const Handle memory = own(H5Screate_simple(1, &one, nullptr), H5Sclose, "add a row");
  check(H5Dwrite(series.dataset.id(), series.type.id(), memory.id(), space.id(), H5P_DEFAULT, value), "write a row");
}

void Archive::File::add(Table& table, hsize_t chunk, std::span<const void* const> values) {
  const bool new_chunk = table.rows % chunk == 0;
  hsize_t bytes = 0;
  for (const Series& series : table.series) bytes += series.chunk_bytes;
  if (new_chunk) reserve(bytes);
  for (std::size_t i = 1; i < values.size(); ++i) put(table.series[i], table.rows, values[i]);
  // Within a flush HDF5 writes values, then lengths, then places of chunks: at a new chunk, the first series waits until the
  // others are complete.
  if (new_chunk) flush();
  put(table.series.front(), table.rows, values[0]);
  flush();
  ++table.rows;
}

void Archive::File::attribute(hid_t object, const char* name, const Handle& type, const void* value) {
  const Handle space = own(H5Screate(H5S_SCALAR), H5Sclose, "describe an attribute");
  const Handle made =
      own(H5Acreate2(object, name, type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "create an attribute");
  check(H5Awrite(made.id(), type.id(), value), "write an attribute");
}

void Archive::File::describe(const Series& series, const std::string& units, const std::string& long_name) {
  const char* texts[] = {units.c_str(), long_name.c_str()};
  attribute(series.dataset.id(), "units", hdf5::string_type(), &texts[0]);
  attribute(series.dataset.id(), "long_name", hdf5::string_type(), &texts[1]);
}

void Archive::File::replace_unit(const Series& series, const std::string& unit) {
  const Handle found = own(H5Aopen(series.dataset.id(), "units", H5P_DEFAULT), H5Aclose, "open an attribute");
  const char* text = unit.c_str();
  check(H5Awrite(found.id(), hdf5::string_type().id(), &text), "write an attribute");
}

void Archive::File::fixed_attribute(const char* name, const std::string& text, std::size_t bytes) {
  attribute(file.id(), name, hdf5::string_type(bytes), hdf5::fixed(text, bytes).data());
}

void Archive::File::replace_attribute(const char* name, const std::string& text, std::size_t bytes) {
  const Handle found = own(H5Aopen(file.id(), name, H5P_DEFAULT), H5Aclose, "open an attribute");
  check(H5Awrite(found.id(), hdf5::string_type(bytes).id(), hdf5::fixed(text, bytes).data()), "write an attribute");
}

void Archive::File::write_text(const Handle& dataset, const std::string& text) {
  const char* value = text.c_str();
  check(H5Dwrite(dataset.id(), hdf5::string_type().id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, &value), "write a text");
}

void Archive::File::begin() {
  if (!overwrite) require_free(path);
  const std::string target = overwrite ? behind_links(path) : path;
  if (overwrite) replaced = take_replaced(target);
  partial = target + ".partial-" + std::to_string(::getpid());
  lock = create_empty(partial, path);
  create();
}

void Archive::File::publish() {
  if (partial.empty()) return;
  broken = true;  // unless it goes well
  give_name(partial, path, overwrite);
  broken = false;
  partial.clear();
  replaced = Descriptor();
}

Archive::File::~File() {
  if (!partial.empty()) ::unlink(partial.c_str());
}

void Archive::File::create() {
  const Handle creation = own(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "describe the file");
  // Chunks per index node / 2. A column's index then is one node, never split, for its first 262,144 rows.
  check(H5Pset_istore_k(creation.id(), kIndexWidth), "describe the file");
  const Handle access = hdf5::file_access();
  file = own(H5Fcreate(partial.c_str(), H5F_ACC_TRUNC, creation.id(), access.id()), H5Fclose, "create the file");
  const std::int32_t version = archive_version;
  attribute(file.id(), "consist_archive_version", own(H5Tcopy(H5T_NATIVE_INT32), H5Tclose, "describe the version"), &version);
  fixed_attribute("status", "running", kStatusBytes);
  fixed_attribute("reason", "", kTextBytes);

  const Handle scalar = own(H5Screate(H5S_SCALAR), H5Sclose, "describe a text");
  for (const char* name : kTexts) {
    Handle dataset =
        own(H5Dcreate2(file.id(), name, hdf5::string_type().id(), scalar.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose,
            "create a text");
    write_text(dataset, "");
    texts.emplace(name, std::move(dataset));
  }

  steps_group = own(H5Gcreate2(file.id(), "steps", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "create /steps");
  const Handle events_group =
      own(H5Gcreate2(file.id(), "events", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "create /events");
  const Handle kind = hdf5::string_type(kKindBytes);
  const Handle text = hdf5::string_type(kTextBytes);
  events.series.push_back(series(events_group.id(), "time", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, kEventChunk, nullptr));
  events.series.push_back(series(events_group.id(), "kind", kind.id(), kind.id(), kEventChunk, nullptr));
  events.series.push_back(series(events_group.id(), "text", text.id(), text.id(), kEventChunk, nullptr));
  describe(events.series.front(), "s", "seconds since 1970-01-01 UTC");
  create_evaluations();
  for (const char* name : kPackedTexts) create_packed(name);
  flush();
}

void Archive::File::create_packed(const char* name) {
  const hsize_t none = 0, unlimited = H5S_UNLIMITED, chunk = kPackedChunk;
  const Handle space = own(H5Screate_simple(1, &none, &unlimited), H5Sclose, "describe a text");
  const Handle creation = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "describe a text");
  check(H5Pset_chunk(creation.id(), 1, &chunk), "describe a text");
  check(H5Pset_deflate(creation.id(), kPackedLevel), "describe a text");
  packed.emplace(name, own(H5Dcreate2(file.id(), name, H5T_STD_U8LE, space.id(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
                           H5Dclose, "create a text"));
}

void Archive::File::create_evaluations() {
  const Handle group =
      own(H5Gcreate2(file.id(), "evaluations", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "create /evaluations");
  const Column columns[] = {{"step", "1", "the step after which the evaluation ran, counted from 1"},
                            {"loss", Loss::default_unit, "mean loss over the sequences"},
                            {"sequences", "1", "sequences of all ranks, each read once"},
                            {"seconds", "s", "wall time of the evaluation"},
                            {"time", "s", "when it ended: seconds since 1970-01-01 UTC"}};
  for (const Column& column : columns) add_evaluated(group.id(), column);
}

void Archive::File::add_evaluated(hid_t group, const Column& column) {
  const bool whole = column.name == "step" || column.name == "sequences";
  // A row whose chunk never reached the file reads as this.
  const std::int64_t no_step = -1;
  const double no_value = std::nan("");
  const void* fill = whole ? static_cast<const void*>(&no_step) : &no_value;
  evaluations.series.push_back(series(group, column.name, whole ? H5T_STD_I64LE : H5T_IEEE_F64LE,
                                      whole ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, kEvaluationChunk, fill));
  describe(evaluations.series.back(), column.unit, column.long_name);
}

}  // namespace consist
