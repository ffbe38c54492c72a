#include "core/checkpoint/written_files.h"

#include <filesystem>
#include <sstream>

#include "consist/error.h"

namespace consist {

std::int64_t list_files(const std::vector<std::string>& written, CheckpointState& state) {
  std::int64_t bytes = 0;
  state.files.clear();
  for (const std::string& text : written) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      state.files.push_back(parse_checkpoint_file(line));
      bytes += state.files.back().bytes;
    }
  }
  return bytes;
}

void throw_first_failure(JoinedJob& job, const std::string& folder, const std::exception& error) {
  std::error_code ignored;
  if (folder.empty() || std::filesystem::exists(folder, ignored)) return;
  job.fail(error.what());  // which waits until it is known who failed first
  try {
    job.check();
  } catch (const PeerError& first) {
    if (first.rank() != job.rank()) throw;
  }
}

}  // namespace consist
