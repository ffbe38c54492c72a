#include "core/base/write_text.h"

#include "consist/files.h"

namespace consist {

void write_text(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace consist
