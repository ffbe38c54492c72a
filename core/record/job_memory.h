// Memory over all ranks of a job: ranks of a pipeline, and those that own more than others, need different amounts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/job.h"

namespace consist {

/// Bytes of the rank that has the most; of several such ranks the first.
struct LargestBytes {
  std::int64_t bytes = 0;
  int rank = 0;
  bool equal = true;  ///< every rank has as many

  bool operator==(const LargestBytes&) const = default;
};

/// Makes `own` bytes known to rank 0 under the name `what`, which is used once in a job. Does not wait.
CONSIST_API void tell_bytes(Job& job, const std::string& what, std::int64_t own);
/// On rank 0 the largest of what all ranks have told under that name, of which it waits for the last (at most Job::timeout());
/// on other ranks `own`. Throws what Job::gather throws.
CONSIST_API LargestBytes largest_bytes(Job& job, const std::string& what, std::int64_t own);

/// On rank 0 the ranks that have told 0 under that name, for which it waits as above; on other ranks nothing.
CONSIST_API std::vector<int> ranks_without_bytes(Job& job, const std::string& what, std::int64_t own);

/// Planned memory of the rank that needs the most, over the plans of all ranks.
struct PlannedMemory {
  LargestBytes device, host;
};

/// "28.9 MiB per rank", or "up to 28.9 MiB per rank (rank 3)" where ranks differ.
CONSIST_API std::string text_of(const LargestBytes& largest);

}  // namespace consist
