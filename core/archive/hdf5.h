// Wrappers of HDF5's C interface for the archive: handles that close themselves, one lock, errors as text.
// Include from .cpp files of core/archive only.
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace consist::hdf5 {

/// HDF5 is built without thread safety: whoever calls it holds a Session; one thread may hold several.
class Session {
 public:
  Session();

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

/// Owns an HDF5 identifier; a negative one is "none". Closes within a Session of its own.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);

  Handle() = default;
  Handle(hid_t id, Close close) noexcept : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept;
  ~Handle() { reset(); }

  hid_t id() const noexcept { return id_; }
  explicit operator bool() const noexcept { return id_ >= 0; }
  /// Closes now; false if HDF5 reports a failure.
  bool reset() noexcept;

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// Returns HDF5's message about the call that just failed: the innermost one, with the system's reason where there is one.
std::string last_error();

/// Access properties of every archive: no file locks, the oldest format that serves, nothing allocated ahead of what is written.
Handle file_access();
/// A UTF-8 string type: of variable length, or of `bytes` padded with zeros.
Handle string_type(std::size_t bytes = H5T_VARIABLE);
/// `text` in exactly `bytes` bytes, padded with zeros; a longer one is cut at a character's start and ends in "…".
std::vector<char> fixed(const std::string& text, std::size_t bytes);

}  // namespace consist::hdf5
