#include "core/record/job_memory.h"

#include "consist/text.h"

namespace consist {
namespace {

/// On rank 0 the bytes of all ranks; elsewhere nothing.
std::vector<std::int64_t> bytes_of_ranks(Job& job, const std::string& what, std::int64_t own) {
  std::vector<std::int64_t> bytes;
  for (const std::string& text : job.gather("bytes." + what, std::to_string(own), job.timeout()))
    bytes.push_back(std::stoll(text));
  return bytes;
}

}  // namespace

void tell_bytes(Job& job, const std::string& what, std::int64_t own) {
  if (job.rank() != 0) bytes_of_ranks(job, what, own);
}

std::vector<int> ranks_without_bytes(Job& job, const std::string& what, std::int64_t own) {
  std::vector<int> ranks;
  if (job.rank() != 0) return ranks;
  const std::vector<std::int64_t> bytes = bytes_of_ranks(job, what, own);
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    if (bytes[rank] == 0) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

LargestBytes largest_bytes(Job& job, const std::string& what, std::int64_t own) {
  LargestBytes largest{.bytes = own, .rank = job.rank()};
  if (job.rank() != 0) return largest;
  const std::vector<std::int64_t> bytes = bytes_of_ranks(job, what, own);
  for (std::size_t rank = 1; rank < bytes.size(); ++rank) {
    largest.equal = largest.equal && bytes[rank] == own;
    if (bytes[rank] > largest.bytes) largest = {.bytes = bytes[rank], .rank = static_cast<int>(rank), .equal = false};
  }
  return largest;
}

std::string text_of(const LargestBytes& largest) {
  if (largest.equal) return bytes_text(largest.bytes) + " per rank";
  return "up to " + bytes_text(largest.bytes) + " per rank (rank " + std::to_string(largest.rank) + ")";
}

}  // namespace consist
