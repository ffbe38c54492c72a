// Times the collectives of a transport on a device, one rank of several.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/dtype.h"
#include "consist/transport.h"

namespace consist::launch {

struct BenchSettings {
  std::vector<std::string> collectives;  ///< of collective_names()
  DType dtype = DType::f32;
  std::int64_t min_bytes = 0, max_bytes = 0;  ///< of the whole data of a collective, as nccl-tests counts them
  std::int64_t factor = 2;                    ///< between sizes; at least 2
  double seconds = 0.5;                       ///< measured per row, about
};

/// all_reduce, all_gather, reduce_scatter, broadcast, send_receive.
const std::vector<std::string>& collective_names();

/// The measurements of one row.
struct BenchRow {
  std::int64_t bytes = 0;  ///< of the whole data: what all_gather gathers, what reduce_scatter reads on each rank
  std::int64_t count = 0;  ///< elements: of the data of all_reduce, broadcast, send_receive; of one rank's part otherwise
  double seconds = 0;      ///< per call, mean over calls and ranks
  double algbw = 0;        ///< bytes / seconds
  double busbw = 0;        ///< algbw times what a link carries per byte of data, as nccl-tests defines it
  std::int64_t wrong = 0;  ///< elements with a wrong result, on all ranks
};

/// Collective over the job, whose ranks are the members of `communicator`; nothing is printed. The rows of one of
/// collective_names(), the same on every rank. Throws UsageError for another name, and what the parts throw.
std::vector<BenchRow> time_collective(Job& job, Device& device, Communicator& communicator, const std::string& name,
                                      const BenchSettings& settings);

/// A message each way at the same time between this member and another.
struct PairRow {
  int partner = 0;
  double rate = 0;         ///< bytes/s of each way
  std::int64_t wrong = 0;  ///< elements that this member received wrong
};

/// Collective over the job, whose ranks are in groups of equal sizes, and `communicator` is this rank's: messages of `bytes`
/// between pairs of members, each member with one other at a time, round after round until all have met, or for so many rounds.
/// Returns this member's pairs. Throws what the parts throw.
std::vector<PairRow> time_pairs(Job& job, Device& device, Communicator& communicator, std::int64_t bytes, int most_rounds);

/// Runs on every rank of the job; `communicator` is the group of all of them and `device` is open. Rank 0 prints a section per
/// collective, in the columns of nccl-tests. Each size is run once on known data and its result compared with the right one, and
/// then timed as one executable of many calls, as a step of training is. Returns the number of wrong elements. Throws what the
/// parts throw.
std::int64_t bench_collectives(Job& job, Device& device, Communicator& communicator, const BenchSettings& settings);

}  // namespace consist::launch
