#include "core/archive/hdf5.h"

#include <algorithm>
#include <string_view>

namespace consist::hdf5 {
namespace {

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

herr_t keep_innermost(unsigned /*depth*/, const H5E_error2_t* error, void* text) {
  if (error->desc != nullptr && *error->desc != '\0') *static_cast<std::string*>(text) = error->desc;
  return 1;  // H5E_WALK_UPWARD starts at the innermost: one is enough
}

}  // namespace

Session::Session() : lock_(library_mutex()) {
  // At exit HDF5 would write out files that are still open, also one that has failed: better as it is than half-written.
  static const herr_t no_exit_handler = H5dont_atexit();
  static_cast<void>(no_exit_handler);
  // A file may name filters by number; their libraries, wherever HDF5 looks for some, are code that nobody asked for.
  static const herr_t no_plugins = H5PLset_loading_state(0);
  static_cast<void>(no_plugins);
  // Failures are thrown with their reason; HDF5 would also print its whole stack.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    reset();
    id_ = std::exchange(other.id_, H5I_INVALID_HID);
    close_ = other.close_;
  }
  return *this;
}

bool Handle::reset() noexcept {
  if (id_ < 0) return true;
  const Session session;
  return close_(std::exchange(id_, H5I_INVALID_HID)) >= 0;
}

std::string last_error() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &text);
  H5Eclear2(H5E_DEFAULT);
  // A failed system call comes with addresses and byte counts around the system's reason.
  constexpr std::string_view label = "error message = '";
  if (const std::size_t begin = text.find(label); begin != std::string::npos) {
    const std::size_t end = text.find('\'', begin + label.size());
    if (end != std::string::npos) text = text.substr(begin + label.size(), end - begin - label.size());
  }
  return text.empty() ? "HDF5 gives no reason" : text;
}

Handle file_access() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(access.id(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST);
  H5Pset_file_locking(access.id(), false, true);
  // With blocks set aside, the superblock could name an end of file that no write has reached yet; HDF5 refuses such a file as
  // truncated.
  H5Pset_meta_block_size(access.id(), 0);
  H5Pset_small_data_block_size(access.id(), 0);
  H5Pset_sieve_buf_size(access.id(), 0);  // a write that fails does so at once, not in a flush that goes on to what refers to it
  return access;
}

Handle string_type(std::size_t bytes) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.id(), bytes);
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  if (bytes != H5T_VARIABLE) H5Tset_strpad(type.id(), H5T_STR_NULLPAD);
  return type;
}

std::vector<char> fixed(const std::string& text, std::size_t bytes) {
  std::vector<char> out(bytes, '\0');
  std::size_t length = text.size();
  const std::string ellipsis = length > bytes ? "…" : "";
  if (length > bytes) {
    length = bytes - ellipsis.size();
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) --length;
  }
  std::copy_n(text.begin(), length, out.begin());
  std::copy(ellipsis.begin(), ellipsis.end(), out.begin() + static_cast<std::ptrdiff_t>(length));
  return out;
}

}  // namespace consist::hdf5
