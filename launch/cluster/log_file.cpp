#include "launch/cluster/log_file.h"

#include <array>
#include <fstream>
#include <utility>

namespace consist::launch {

void LineCutter::take(std::string_view text) {
  for (const char c : text) {
    if (c != '\n' && c != '\r') {
      line_ += c;
    } else if (!line_.empty()) {
      on_line_(std::exchange(line_, {}));
    }
  }
}

LogFile::LogFile(std::string path, std::function<void(const std::string& line)> on_line)
    : path_(std::move(path)), lines_(std::move(on_line)) {}

bool LogFile::read() {
  // Opened anew each time: a network's file system looks for what others have written when a file is opened.
  std::ifstream file(path_, std::ios::binary);
  if (!file || !file.seekg(read_)) return false;
  bool any = false;
  for (std::array<char, 1 << 16> block; file.read(block.data(), block.size()) || file.gcount() > 0;) {
    any = true;
    read_ += file.gcount();
    lines_.take(std::string_view(block.data(), static_cast<std::size_t>(file.gcount())));
  }
  return any;
}

void LogFile::read_to_the_end() {
  read();
  lines_.end();
}

}  // namespace consist::launch
