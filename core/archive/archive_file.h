// The HDF5 file behind an Archive: its name and lock, texts, attributes, and tables that grow by rows. Include from
// core/archive/archive.cpp and archive_file.cpp only.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/archive/archive.h"
#include "core/archive/archive_place.h"
#include "core/archive/hdf5.h"

namespace consist {

/// From publish() on it is readable at any moment, even if the process is killed. Used within an hdf5::Session.
struct Archive::File {
  using Handle = hdf5::Handle;

  static constexpr hsize_t kChunk = 1024;  // rows of /steps
  static constexpr hsize_t kEventChunk = 64;
  static constexpr hsize_t kEvaluationChunk = 64;
  static constexpr std::size_t kEvaluatedLoss = 1;  // its place among the columns of /evaluations
  static constexpr hsize_t kExpertsChunk = 16;
  static constexpr std::size_t kStatusBytes = 16;
  static constexpr std::size_t kKindBytes = 32;
  static constexpr std::size_t kTextBytes = 1024;

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

  std::string path;
  bool overwrite = false;
  std::string partial;  // the file's name until publish(), then empty
  Descriptor lock;      // on this file
  Descriptor replaced;  // until then, the file that has the name, locked as well
  Handle file;
  std::map<std::string, Handle> texts, packed;
  Handle steps_group;
  Table steps, events, evaluations, experts;
  std::vector<std::string> evaluated_metrics;  // columns of /evaluations behind those that each has
  std::vector<Handle> fences;  // see reserve()
  bool broken = false;

  [[noreturn]] void fail(const std::string& what);
  template <typename Result>
  Result check(Result result, const char* what) {
    if (result < 0) fail(what);
    return result;
  }
  Handle own(hid_t id, Handle::Close close, const char* what) { return Handle(check(id, what), close); }

  void require_open() const;

  void flush() { check(H5Fflush(file.id(), H5F_SCOPE_LOCAL), "write"); }

  Series series(hid_t parent, const std::string& name, hid_t stored, hid_t in_memory, hsize_t chunk, const void* fill);

  /// A dataset of zeros without a name, which HDF5 forgets when it is closed.
  Handle nameless(hsize_t bytes);

  /// Makes the file so long that the next chunks fit inside it. HDF5 writes the end of the file, as readers check it, after the
  /// index of chunks; a chunk added beyond the old end would be out of bounds to whoever reads after a kill between the two. It
  /// also is what makes a full disk show here, before anything refers to the bytes that could not be written.
  void reserve(hsize_t bytes);

  void put(Series& series, hsize_t row, const void* value);

  /// Adds a row: a value per series, in their order.
  void add(Table& table, hsize_t chunk, std::span<const void* const> values);

  void attribute(hid_t object, const char* name, const Handle& type, const void* value);

  void describe(const Series& series, const std::string& units, const std::string& long_name);
  void replace_unit(const Series& series, const std::string& unit);

  /// Creates a text attribute of fixed length, which replace_attribute() overwrites in place by one write.
  void fixed_attribute(const char* name, const std::string& text, std::size_t bytes);

  void replace_attribute(const char* name, const std::string& text, std::size_t bytes);

  void write_text(const Handle& dataset, const std::string& text);

  /// Makes the file under its partial name.
  void begin();

  /// Gives the file its name: from here on a kill at any moment leaves it readable.
  void publish();

  ~File();

  /// Everything but the columns of /steps is created here: a group that changes while steps are written could be torn by a kill,
  /// and with it the way to the steps.
  void create();

  /// Bytes, compressed; none until they are written.
  void create_packed(const char* name);

  void create_evaluations();
  void add_evaluated(hid_t group, const Column& column);
};

}  // namespace consist
