// Files of events as TensorBoard reads them: records (the format of TFRecord) of the protocol-buffer message Event.
//
// A record is its length (8 bytes, little endian), the masked CRC-32C of these bytes, the message, and the masked CRC-32C of the
// message. Of Event the fields wall_time (1), step (2), file_version (3), summary (5) and session_log (7) are written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/observers/common/appended_file.h"

namespace consist::tensorboard {

using Scalars = std::vector<std::pair<std::string, double>>;  ///< tag and value

/// Writes a new file. Whatever a member has returned from is in it. Throws SystemError.
class EventFile {
 public:
  /// Makes the file, with the record that every file begins with.
  explicit EventFile(const std::string& path);

  /// `time`: seconds since the epoch, of all members.
  void scalars(double time, std::int64_t step, const Scalars& values);
  /// Markdown, for the page of texts.
  void text(double time, std::int64_t step, std::string_view tag, std::string_view markdown);
  /// A run (re)starts before `step`: readers forget what they have read of it and later steps.
  void restart(double time, std::int64_t step);

 private:
  void write(const std::string& event);

  observers::AppendedFile file_;
};

/// Cuts a file behind its last record of a step up to `last_step`; also what a killed run left of a record at its end. Throws
/// DataError for a file that is none of events, SystemError if it cannot be changed.
void cut_back(const std::string& path, std::int64_t last_step);

/// For tests: of the bytes "123456789" it is 0xe3069283.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace consist::tensorboard
