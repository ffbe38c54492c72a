#include "core/checkpoint/written_files.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "consist/error.h"
#include "consist/host.h"

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

int verifying_threads(const Job& job) {
  return std::max(usable_cores() / job.local_size(), 1);
}

int hashing_threads(const Job& job) {
  constexpr int part = 4;   // of the processors that the rank may use
  constexpr int most = 16;  // with more, writing is what takes the time
  return std::clamp(verifying_threads(job) / part, 1, most);
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
