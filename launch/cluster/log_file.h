// A log that another machine writes, read as it grows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace consist::launch {

/// Hands each new line of a file to a function. The file may appear late, and a shared folder shows its growth late.
class LogFile {
 public:
  LogFile(std::string path, std::function<void(const std::string& line)> on_line);

  /// Reads what has come since the last call; a line without its end waits for it. False if nothing came.
  bool read();
  /// The same, with a last line that has no end.
  void read_to_the_end();

 private:
  void take(std::string_view text);

  std::string path_;
  std::function<void(const std::string& line)> on_line_;
  std::int64_t read_ = 0;
  std::string line_;
};

}  // namespace consist::launch
