#include "core/job/long_text.h"

#include <cstddef>

namespace consist {
namespace {

/// A value of the job's store is no larger than this.
constexpr std::size_t part_bytes = std::size_t{1} << 20U;

}  // namespace

void put_long_text(Job& job, const std::string& key, std::string_view text) {
  std::size_t parts = 0;
  for (std::size_t at = 0; at < text.size(); at += part_bytes)
    job.put(key + "." + std::to_string(parts++), text.substr(at, part_bytes));
  job.put(key + ".parts", std::to_string(parts));
}

std::string get_long_text(Job& job, const std::string& key) {
  const std::size_t parts = std::stoul(job.get(key + ".parts", job.timeout()));
  std::string text;
  for (std::size_t i = 0; i < parts; ++i) text += job.get(key + "." + std::to_string(i), job.timeout());
  return text;
}

}  // namespace consist
