// Numbers that the ranks of a job tell each other.
#pragma once

#include <string>
#include <vector>

#include "consist/job.h"

namespace consist::launch {

/// Collective over the job: what each rank gives, by rank; equally many numbers on all. `key` is used once in the job's life.
/// Throws what Job::get throws.
std::vector<std::vector<double>> numbers_of_ranks(Job& job, const std::string& key, const std::vector<double>& own);

}  // namespace consist::launch
