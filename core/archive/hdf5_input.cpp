#include "core/archive/hdf5_input.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/text.h"

namespace consist::hdf5 {
namespace {

constexpr int most_depth = 8;
constexpr std::size_t most_links = 10'000, most_name_bytes = 1024, most_attributes = 256;
constexpr hsize_t most_attribute_bytes = hsize_t{1} << 20, most_chunk_bytes = hsize_t{64} << 20;
constexpr hsize_t most_dataset_bytes = hsize_t{512} << 20;
constexpr hsize_t most_deflation = 1032;  // no deflated byte makes more
constexpr std::array known_filters = {H5Z_FILTER_DEFLATE, H5Z_FILTER_SHUFFLE, H5Z_FILTER_FLETCHER32};

struct Link {
  std::string name;
  H5L_type_t type;
};

/// C code lies between: exceptions stay out of these two.
herr_t add_link(hid_t /*group*/, const char* name, const H5L_info_t* info, void* into) noexcept {
  auto& links = *static_cast<std::vector<Link>*>(into);
  if (links.size() > most_links || std::strlen(name) > most_name_bytes) return -1;
  links.push_back({name, info->type});
  return 0;
}

struct Attributes {
  std::size_t count = 0;
  hsize_t most_bytes = 0;
};

herr_t add_attribute(hid_t /*object*/, const char* /*name*/, const H5A_info_t* info, void* into) noexcept {
  auto& all = *static_cast<Attributes*>(into);
  all.most_bytes = std::max(all.most_bytes, info->data_size);
  return ++all.count > most_attributes ? -1 : 0;
}

/// Walks over all that the file holds and reads no data.
class Inspection {
 public:
  Inspection(const std::string& path, hsize_t file_bytes, hid_t file)
      : path_(path), file_bytes_(file_bytes), is_comparison_(H5Aexists(file, "consist_comparison_version") > 0) {}

  void group(hid_t id, const std::string& where, int depth) {
    if (depth > most_depth) refuse(where, "lies in more than " + std::to_string(most_depth) + " groups, or in itself");
    attributes(id, where);
    std::vector<Link> links;
    // In the file's order: for another one HDF5 1.10 makes a table, and frees what it has not made where a link is damaged.
    if (H5Literate(id, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, add_link, &links) < 0)
      refuse(where, "cannot be listed, or has too many or too long names");
    links_ += links.size();
    if (links_ > most_links) refuse(where, "is one group too many: a file may have " + std::to_string(most_links) + " names");
    for (const Link& link : links) member(id, where + "/" + link.name, link, depth);
  }

 private:
  [[noreturn]] void refuse(const std::string& where, const std::string& why) const {
    last_error();  // which clears it
    throw DataError(path_ + " is refused: " + in_quotes(where.empty() ? "/" : where) + " " + why +
                    ". An archive holds all its data itself, in moderate sizes");
  }
  Handle own(hid_t id, Handle::Close close, const std::string& where) const {
    if (id < 0) throw DataError(path_ + " is damaged: cannot read " + in_quotes(where) + ": " + last_error());
    return {id, close};
  }

  void member(hid_t group_id, const std::string& where, const Link& link, int depth) {
    const bool is_run = is_comparison_ && depth == 1 && where.starts_with("/runs/");
    if (link.type == H5L_TYPE_EXTERNAL && is_run) return;
    if (link.type == H5L_TYPE_SOFT) refuse(where, "is a soft link");
    if (link.type == H5L_TYPE_EXTERNAL) refuse(where, "is a link into another file");
    if (link.type != H5L_TYPE_HARD) refuse(where, "is a link of an unknown kind");
    const Handle object = own(H5Oopen(group_id, link.name.c_str(), H5P_DEFAULT), H5Oclose, where);
    const H5I_type_t kind = H5Iget_type(object.id());
    if (kind == H5I_GROUP) return group(object.id(), where, depth + 1);
    if (kind == H5I_DATASET) dataset(object.id(), where);
  }

  void attributes(hid_t id, const std::string& where) const {
    Attributes all;
    if (H5Aiterate2(id, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, add_attribute, &all) < 0 || all.most_bytes > most_attribute_bytes)
      refuse(where, "has attributes that cannot be listed, or too many or too large ones");
  }

  void dataset(hid_t id, const std::string& where) const {
    attributes(id, where);
    const Handle creation = own(H5Dget_create_plist(id), H5Pclose, where);
    const H5D_layout_t layout = H5Pget_layout(creation.id());
    if (layout == H5D_VIRTUAL) refuse(where, "is a virtual dataset, which reads others");
    if (H5Pget_external_count(creation.id()) != 0) refuse(where, "has its data in another file");
    const Handle type = own(H5Dget_type(id), H5Tclose, where);
    const hsize_t chunk = layout == H5D_CHUNKED ? chunk_bytes(creation, type, where) : 0;
    const bool is_deflated = has_filter(creation, where);
    const Handle space = own(H5Dget_space(id), H5Sclose, where);
    const hssize_t elements = H5Sget_simple_extent_npoints(space.id());
    const hsize_t each = H5Tget_size(type.id());
    if (elements < 0 || each == 0) refuse(where, "has no size that can be read");
    const hsize_t possible = is_deflated ? file_bytes_ * most_deflation : file_bytes_;
    const hsize_t most = std::min(most_dataset_bytes, possible + chunk);  // of a killed run's last chunk, a row may be all
    if (static_cast<hsize_t>(elements) > most / each) {
      refuse(where, "claims " + std::to_string(elements) + " elements of " + bytes_text(static_cast<std::int64_t>(each)) +
                        ", and a dataset of this file can have " + bytes_text(static_cast<std::int64_t>(most)));
    }
  }

  hsize_t chunk_bytes(const Handle& creation, const Handle& type, const std::string& where) const {
    std::array<hsize_t, H5S_MAX_RANK> shape{};
    const int rank = H5Pget_chunk(creation.id(), H5S_MAX_RANK, shape.data());
    hsize_t bytes = H5Tget_size(type.id());
    if (rank < 1 || bytes == 0) refuse(where, "has chunks that cannot be read");
    for (int dim = 0; dim < rank; ++dim) {
      const hsize_t length = shape.at(static_cast<std::size_t>(dim));
      if (length > most_chunk_bytes / bytes)
        refuse(where, "has chunks of more than " + bytes_text(static_cast<std::int64_t>(most_chunk_bytes)));
      bytes *= length;
    }
    return bytes;
  }

  bool has_filter(const Handle& creation, const std::string& where) const {
    const int filters = H5Pget_nfilters(creation.id());
    for (int n = 0; n < filters; ++n) {
      unsigned flags = 0, of_filter = 0;
      std::size_t values = 0;
      const H5Z_filter_t filter =
          H5Pget_filter2(creation.id(), static_cast<unsigned>(n), &flags, &values, nullptr, 0, nullptr, &of_filter);
      if (std::find(known_filters.begin(), known_filters.end(), filter) == known_filters.end())
        refuse(where, "is packed by the filter " + std::to_string(filter) + ", which would be code from elsewhere");
    }
    return filters > 0;
  }

  const std::string& path_;
  const hsize_t file_bytes_;
  const bool is_comparison_;
  std::size_t links_ = 0;
};

void* allocate_text(std::size_t bytes, void* most) noexcept {
  return bytes > *static_cast<const std::size_t*>(most) ? nullptr : std::malloc(bytes);
}
void free_text(void* text, void* /*most*/) noexcept {
  std::free(text);
}

}  // namespace

Handle open_input(const std::string& path) {
  const InputFile found(path);  // a folder, a pipe or a device is refused here
  const Handle access = file_access();
  Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose);
  if (!file) throw DataError(path + " is cut off or no archive: " + last_error());
  const Handle root(H5Gopen2(file.id(), "/", H5P_DEFAULT), H5Gclose);
  if (!root) throw DataError(path + " is damaged: cannot read /: " + last_error());
  const InputFile grown(path);  // a run that goes on may have added to it
  Inspection(path, static_cast<hsize_t>(grown.size()), file.id()).group(root.id(), "", 0);
  return file;
}

bool is_single(const Handle& space) {
  return space && H5Sget_simple_extent_npoints(space.id()) == 1;
}

std::string read_string(hid_t dataset, const std::string& path, const std::string& name) {
  const auto fail = [&]() { throw DataError("the archive " + path + " is damaged: cannot read " + name + ": " + last_error()); };
  const Handle type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose);
  if (!type || H5Tget_class(type.id()) != H5T_STRING || !is_single(space))
    throw DataError("the archive " + path + " is damaged: " + name + " is not one text");
  if (H5Tis_variable_str(type.id()) <= 0) {
    std::string text(H5Tget_size(type.id()), '\0');
    if (H5Dread(dataset, type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) < 0) fail();
    return text.c_str();
  }
  // Its length is known only while it is read.
  std::size_t most = most_dataset_bytes;
  const Handle transfer(H5Pcreate(H5P_DATASET_XFER), H5Pclose);
  if (!transfer || H5Pset_vlen_mem_manager(transfer.id(), allocate_text, &most, free_text, &most) < 0) fail();
  char* value = nullptr;
  if (H5Dread(dataset, string_type().id(), H5S_ALL, H5S_ALL, transfer.id(), &value) < 0) fail();
  std::string text = value == nullptr ? "" : value;
  std::free(value);
  return text;
}

}  // namespace consist::hdf5
