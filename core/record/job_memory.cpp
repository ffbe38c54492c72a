#include "core/record/job_memory.h"

#include "consist/text.h"

namespace consist {
namespace {

std::string key_of(const std::string& what, int rank) {
  return "bytes." + what + "." + std::to_string(rank);
}

}  // namespace

void tell_bytes(Job& job, const std::string& what, std::int64_t own) {
  if (job.rank() != 0) job.put(key_of(what, job.rank()), std::to_string(own));
}

std::vector<int> ranks_without_bytes(Job& job, const std::string& what, std::int64_t own) {
  std::vector<int> ranks;
  if (job.rank() == 0 && own == 0) ranks.push_back(0);
  for (int rank = 1; job.rank() == 0 && rank < job.size(); ++rank) {
    if (std::stoll(job.get(key_of(what, rank), job.timeout())) == 0) ranks.push_back(rank);
  }
  return ranks;
}

LargestBytes largest_bytes(Job& job, const std::string& what, std::int64_t own) {
  LargestBytes largest{.bytes = own, .rank = job.rank()};
  for (int rank = 1; job.rank() == 0 && rank < job.size(); ++rank) {
    const std::int64_t bytes = std::stoll(job.get(key_of(what, rank), job.timeout()));
    largest.equal = largest.equal && bytes == own;
    if (bytes > largest.bytes) largest = {.bytes = bytes, .rank = rank, .equal = false};
  }
  return largest;
}

std::string text_of(const LargestBytes& largest) {
  if (largest.equal) return bytes_text(largest.bytes) + " per rank";
  return "up to " + bytes_text(largest.bytes) + " per rank (rank " + std::to_string(largest.rank) + ")";
}

}  // namespace consist
