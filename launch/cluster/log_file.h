// Lines of what other programs say: of a text that arrives in pieces, of a log that another machine writes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace consist::launch {

/// Cuts what arrives into lines; a carriage return ends one, too. Empty ones are left out.
class LineCutter {
 public:
  explicit LineCutter(std::function<void(const std::string& line)> on_line) : on_line_(std::move(on_line)) {}

  void take(std::string_view text);
  /// The last line, which has no end.
  void end() { take("\n"); }

 private:
  std::function<void(const std::string& line)> on_line_;
  std::string line_;
};

/// Hands each new line of a file to a function. The file may appear late, and a shared folder shows its growth late.
class LogFile {
 public:
  LogFile(std::string path, std::function<void(const std::string& line)> on_line);

  /// Reads what has come since the last call; a line without its end waits for it. False if nothing came.
  bool read();
  /// The same, with a last line that has no end.
  void read_to_the_end();

 private:
  std::string path_;
  LineCutter lines_;
  std::int64_t read_ = 0;
};

}  // namespace consist::launch
