#include "core/archive/archive.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "consist/error.h"
#include "core/archive/archive_place.h"
#include "core/archive/hdf5.h"

namespace consist {
namespace {

using hdf5::fixed;
using hdf5::Handle;

constexpr hsize_t kChunk = 1024;  // rows of /steps
constexpr hsize_t kEventChunk = 64;
constexpr hsize_t kEvaluationChunk = 64;
constexpr hsize_t kExpertsChunk = 16;
constexpr hsize_t kPackedChunk = 65536;  // bytes of a text
constexpr unsigned kPackedLevel = 6;
constexpr hsize_t kFenceBytes = 8192;
constexpr std::size_t kStatusBytes = 16;
constexpr std::size_t kKindBytes = 32;
constexpr std::size_t kTextBytes = 1024;
constexpr unsigned kIndexWidth = 128;
constexpr std::array kTexts = {"/config", "/environment", "/topology", "/program",   "/start",
                               "/comm",   "/result",      "/profile",  "/evaluation"};
constexpr std::array kPackedTexts = {"/timeline", "/programs"};

/// A 1-D dataset that grows by one row at a time.
struct Series {
  Handle dataset;
  Handle type;              // in memory
  hsize_t chunk_bytes = 0;  // in the file
};

/// Datasets that grow together. The first is written last: a row is there once it is.
struct Table {
  std::vector<Series> series;
  hsize_t rows = 0;
};

}  // namespace

struct Archive::File {
  std::string path;
  bool overwrite = false;
  std::string partial;  // the file's name until publish(), then empty
  Descriptor lock;      // on this file
  Descriptor replaced;  // until then, the file that has the name, locked as well
  Handle file;
  std::map<std::string, Handle> texts, packed;
  Handle steps_group;
  Table steps, events, evaluations, experts;
  std::vector<Handle> fences;  // see reserve()
  bool broken = false;

  [[noreturn]] void fail(const std::string& what) {
    broken = true;
    throw SystemError("cannot " + what + " in the archive " + path + ": " + hdf5::last_error());
  }
  template <typename Result>
  Result check(Result result, const char* what) {
    if (result < 0) fail(what);
    return result;
  }
  Handle own(hid_t id, Handle::Close close, const char* what) { return Handle(check(id, what), close); }

  void require_open() const {
    if (!file) throw ProgramError("the archive " + path + " is written to after finish()");
    if (broken) throw SystemError("the archive " + path + " takes no more data: an earlier write failed");
  }

  void flush() { check(H5Fflush(file.id(), H5F_SCOPE_LOCAL), "write"); }

  Series series(hid_t parent, const std::string& name, hid_t stored, hid_t in_memory, hsize_t chunk, const void* fill) {
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

  /// A dataset of zeros without a name, which HDF5 forgets when it is closed.
  Handle nameless(hsize_t bytes) {
    const Handle space = own(H5Screate_simple(1, &bytes, nullptr), H5Sclose, "reserve space");
    const Handle creation = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "reserve space");
    check(H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY), "reserve space");
    Handle made =
        own(H5Dcreate_anon(file.id(), H5T_NATIVE_UINT8, space.id(), creation.id(), H5P_DEFAULT), H5Dclose, "reserve space");
    const std::vector<std::uint8_t> zeros(bytes);
    check(H5Dwrite(made.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()), "reserve space");
    return made;
  }

  /// Makes the file so long that the next chunks fit inside it. HDF5 writes the end of the file, as readers check it, after the
  /// index of chunks; a chunk added beyond the old end would be out of bounds to whoever reads after a kill between the two. It
  /// also is what makes a full disk show here, before anything refers to the bytes that could not be written.
  void reserve(hsize_t bytes) {
    Handle room = nameless(bytes);
    // Space that is given back at the end of the file would shorten it again: something must stay behind it.
    do {
      fences.push_back(nameless(kFenceBytes));
    } while (H5Dget_offset(fences.back().id()) < H5Dget_offset(room.id()));
    flush();
    if (!room.reset()) fail("reserve space");  // now free, and taken first by what is added next
  }

  void put(Series& series, hsize_t row, const void* value) {
    const hsize_t rows_then = row + 1;
    const hsize_t one = 1;
    check(H5Dset_extent(series.dataset.id(), &rows_then), "add a row");
    const Handle space = own(H5Dget_space(series.dataset.id()), H5Sclose, "add a row");
    check(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, &row, nullptr, &one, nullptr), "add a row");
    const Handle memory = own(H5Screate_simple(1, &one, nullptr), H5Sclose, "add a row");
    check(H5Dwrite(series.dataset.id(), series.type.id(), memory.id(), space.id(), H5P_DEFAULT, value), "write a row");
  }

  /// Adds a row: a value per series, in their order.
  void add(Table& table, hsize_t chunk, std::span<const void* const> values) {
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

  void attribute(hid_t object, const char* name, const Handle& type, const void* value) {
    const Handle space = own(H5Screate(H5S_SCALAR), H5Sclose, "describe an attribute");
    const Handle made =
        own(H5Acreate2(object, name, type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "create an attribute");
    check(H5Awrite(made.id(), type.id(), value), "write an attribute");
  }

  void describe(const Series& series, const std::string& units, const std::string& long_name) {
    const char* texts[] = {units.c_str(), long_name.c_str()};
    attribute(series.dataset.id(), "units", hdf5::string_type(), &texts[0]);
    attribute(series.dataset.id(), "long_name", hdf5::string_type(), &texts[1]);
  }

  /// Of fixed length: it is replaced where it stands, by one write.
  void fixed_attribute(const char* name, const std::string& text, std::size_t bytes) {
    attribute(file.id(), name, hdf5::string_type(bytes), hdf5::fixed(text, bytes).data());
  }

  void replace_attribute(const char* name, const std::string& text, std::size_t bytes) {
    const Handle found = own(H5Aopen(file.id(), name, H5P_DEFAULT), H5Aclose, "open an attribute");
    check(H5Awrite(found.id(), hdf5::string_type(bytes).id(), hdf5::fixed(text, bytes).data()), "write an attribute");
  }

  void write_text(const Handle& dataset, const std::string& text) {
    const char* value = text.c_str();
    check(H5Dwrite(dataset.id(), hdf5::string_type().id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, &value), "write a text");
  }

  /// Makes the file under its partial name.
  void begin() {
    if (!overwrite) require_free(path);
    const std::string target = overwrite ? behind_links(path) : path;
    if (overwrite) replaced = take_replaced(target);
    partial = target + ".partial-" + std::to_string(::getpid());
    lock = create_empty(partial, path);
    create();
  }

  /// Gives the file its name: from here on a kill at any moment leaves it readable.
  void publish() {
    if (partial.empty()) return;
    broken = true;  // unless it goes well
    give_name(partial, path, overwrite);
    broken = false;
    partial.clear();
    replaced = Descriptor();
  }

  ~File() {
    if (!partial.empty()) ::unlink(partial.c_str());
  }

  /// Everything but the columns of /steps is created here: a group that changes while steps are written could be torn by a kill,
  /// and with it the way to the steps.
  void create() {
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

  /// Bytes, compressed; none until they are written.
  void create_packed(const char* name) {
    const hsize_t none = 0, unlimited = H5S_UNLIMITED, chunk = kPackedChunk;
    const Handle space = own(H5Screate_simple(1, &none, &unlimited), H5Sclose, "describe a text");
    const Handle creation = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "describe a text");
    check(H5Pset_chunk(creation.id(), 1, &chunk), "describe a text");
    check(H5Pset_deflate(creation.id(), kPackedLevel), "describe a text");
    packed.emplace(name, own(H5Dcreate2(file.id(), name, H5T_STD_U8LE, space.id(), H5P_DEFAULT, creation.id(), H5P_DEFAULT),
                             H5Dclose, "create a text"));
  }

  void create_evaluations() {
    const Handle group =
        own(H5Gcreate2(file.id(), "evaluations", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "create /evaluations");
    const Column columns[] = {{"step", "1", "the step after which the evaluation ran, counted from 1"},
                              {"loss", "nat/token", "mean cross-entropy over all tokens of the sequences"},
                              {"sequences", "1", "sequences of all ranks, each read once"},
                              {"seconds", "s", "wall time of the evaluation"},
                              {"time", "s", "when it ended: seconds since 1970-01-01 UTC"}};
    for (const Column& column : columns) {
      const bool whole = column.name == "step" || column.name == "sequences";
      // A row whose chunk never reached the file reads as this.
      const std::int64_t no_step = -1;
      const double no_value = std::nan("");
      const void* fill = whole ? static_cast<const void*>(&no_step) : &no_value;
      evaluations.series.push_back(series(group.id(), column.name, whole ? H5T_STD_I64LE : H5T_IEEE_F64LE,
                                          whole ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, kEvaluationChunk, fill));
      describe(evaluations.series.back(), column.unit, column.long_name);
    }
  }
};

Archive::Archive(const std::string& path, bool overwrite) : path_(path), file_(std::make_unique<File>()) {
  const hdf5::Session session;
  file_->path = path;
  file_->overwrite = overwrite;
  file_->begin();
}

Archive::~Archive() {
  // HDF5 would try to write the rest of a file that has failed, and tear what is whole in it: such a file is left open, out of
  // reach.
  static std::vector<std::unique_ptr<File>>& failed = *new std::vector<std::unique_ptr<File>>;
  const hdf5::Session session;
  try {
    if (!file_->broken) file_->publish();
  } catch (const Error&) {
    // Somebody else has taken the name meanwhile.
  }
  if (!file_->broken) return;
  if (!file_->partial.empty()) ::unlink(std::exchange(file_->partial, {}).c_str());
  failed.push_back(std::move(file_));
}

void Archive::rename(const std::string& path) {
  const hdf5::Session session;
  file_->require_open();
  file_->flush();
  if (std::rename(path_.c_str(), path.c_str()) != 0) {
    throw SystemError("cannot give the archive " + path_ + " the name " + path + ": " + std::strerror(errno));
  }
  path_ = path;
  file_->path = path;
}

void Archive::text(const std::string& path, const std::string& json) {
  const hdf5::Session session;
  file_->require_open();
  const auto found = file_->texts.find(path);
  if (found == file_->texts.end()) throw ProgramError("an archive has no text " + path);
  file_->write_text(found->second, json);
  file_->flush();
}

void Archive::define_experts(const std::vector<std::int64_t>& layers, std::int64_t experts) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (!file.steps.series.empty() || !file.experts.series.empty())
    throw ProgramError("/experts is defined late or twice in " + path_);
  const Handle group =
      file.own(H5Gcreate2(file.file.id(), "experts", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "create /experts");
  const std::array<hsize_t, 2> shape{layers.size(), static_cast<hsize_t>(experts)};
  const auto matrix = [&](hid_t of) { return file.own(H5Tarray_create2(of, 2, shape.data()), H5Tclose, "describe /experts"); };
  const Handle stored = matrix(H5T_STD_I32LE), in_memory = matrix(H5T_NATIVE_INT32);
  const std::int64_t no_step = -1;
  Series layer = file.series(group.id(), "layer", H5T_STD_I64LE, H5T_NATIVE_INT64, layers.size(), nullptr);
  file.describe(layer, "1", "the transformer layer of each router, counted from 0");
  for (std::size_t row = 0; row < layers.size(); ++row) file.put(layer, row, &layers[row]);
  std::vector<Series>& series = file.experts.series;
  series.push_back(file.series(group.id(), "step", H5T_STD_I64LE, H5T_NATIVE_INT64, kExpertsChunk, &no_step));
  file.describe(series[0], "1", "step, counted from 1");
  series.push_back(file.series(group.id(), "choices", stored.id(), in_memory.id(), kExpertsChunk, nullptr));
  file.describe(series[1], "1", "how many choices of the step's tokens fell on each expert, over all ranks: [routers, experts]");
}

void Archive::packed_text(const std::string& path, const std::string& json) {
  const hsize_t bytes = json.size();
  const hdf5::Session session;
  file_->require_open();
  const auto found = file_->packed.find(path);
  if (found == file_->packed.end()) throw ProgramError("an archive has no compressed text " + path);
  file_->check(H5Dset_extent(found->second.id(), &bytes), "write a text");
  file_->check(H5Dwrite(found->second.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, json.data()), "write a text");
  file_->flush();
}

void Archive::define_steps(const std::vector<Column>& columns) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (!file.steps.series.empty()) throw ProgramError("the columns of /steps are defined twice in " + path_);
  if (columns.empty() || columns.front().name != "step") throw ProgramError("the first column of /steps must be \"step\"");
  for (const Column& column : columns) {
    const bool is_step = &column == &columns.front();
    // A row whose chunk never reached the file reads as this: see ArchiveReader.
    const std::int64_t no_step = -1;
    const double no_value = std::nan("");
    Series series = is_step
                        ? file.series(file.steps_group.id(), column.name, H5T_STD_I64LE, H5T_NATIVE_INT64, kChunk, &no_step)
                        : file.series(file.steps_group.id(), column.name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, kChunk, &no_value);
    file.describe(series, column.unit, column.long_name);
    file.steps.series.push_back(std::move(series));
  }
  file.flush();
  file.publish();
}

void Archive::append(std::span<const double> values) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (file.steps.series.empty() || values.size() != file.steps.series.size()) {
    throw ProgramError("a row of " + std::to_string(values.size()) + " values for " + std::to_string(file.steps.series.size()) +
                       " columns of /steps in " + path_);
  }
  const auto step = static_cast<std::int64_t>(values.front());
  std::vector<const void*> row{&step};
  for (const double& value : values.subspan(1)) row.push_back(&value);
  file.add(file.steps, kChunk, row);
}

void Archive::experts(const ArchivedChoices& row) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (file.experts.series.empty() || row.choices.size() * sizeof(std::int32_t) != H5Tget_size(file.experts.series[1].type.id()))
    throw ProgramError("a row of " + std::to_string(row.choices.size()) + " choices does not fit /experts in " + path_);
  file.add(file.experts, kExpertsChunk, std::array<const void*, 2>{&row.step, row.choices.data()});
}

void Archive::evaluation(const ArchivedEvaluation& row) {
  const hdf5::Session session;
  file_->require_open();
  file_->add(file_->evaluations, kEvaluationChunk,
             std::array<const void*, 5>{&row.step, &row.loss, &row.sequences, &row.seconds, &row.time});
}

void Archive::event(double time, const std::string& kind, const std::string& text) {
  const hdf5::Session session;
  file_->require_open();
  const std::vector<char> kind_bytes = hdf5::fixed(kind, kKindBytes), text_bytes = hdf5::fixed(text, kTextBytes);
  file_->add(file_->events, kEventChunk, std::array<const void*, 3>{&time, kind_bytes.data(), text_bytes.data()});
}

void Archive::finish(const std::string& status, const std::string& reason) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (status != "finished" && status != "failed" && status != "stopped") throw ProgramError("an archive has no status " + status);
  file.replace_attribute("reason", reason, kTextBytes);
  file.replace_attribute("status", status, kStatusBytes);
  file.flush();
  file.publish();
  file.texts.clear();
  file.packed.clear();
  file.steps_group.reset();
  for (Table* table : {&file.steps, &file.evaluations, &file.events, &file.experts}) table->series.clear();
  file.fences.clear();
  if (!file.file.reset()) file.fail("close the file");
  file.lock = Descriptor();
}

}  // namespace consist
