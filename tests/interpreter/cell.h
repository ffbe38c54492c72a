// One cell of the matrix: a configuration beside one rank, which has no micro-batches, nothing packed and nothing recomputed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/prove/one_rank.h"
#include "tests/interpreter/configuration.h"

namespace consist::interpreter {

/// Outcome of the same model, tokens and weights on one rank. Kept for the process.
const Outcome& one_rank(const RankPrograms& programs);

/// Differences from one rank: losses, norms, parameters, moments, gradients, each with its first element; empty if none.
std::vector<std::string> differences(const RankPrograms& programs, const Outcome& found);

/// The same of one step whose values are rounded to the program's dtypes, beside one rank of that precision: what differs by more
/// than f32 rounds. Only for layouts that divide no activation, where nothing but sums over micro-batches and ranks differs.
inline constexpr double rounded_tolerance = 1e-5;
std::vector<std::string> differences_of_rounded(const RankPrograms& programs, std::uint64_t order);

/// Errors when the programs run in memory: an exception, or differences from one rank.
std::vector<std::string> wrong_in_run(const RankPrograms& programs, std::uint64_t order);

/// Compiles, proves the order of every rank's programs, runs, compares. Gives all that is wrong; throws UsageError for what the
/// compiler refuses. `order` also decides how much scratch kernels have.
std::vector<std::string> check(const ModelChoice& model, const std::vector<std::string>& words, std::uint64_t order);

std::string text_of(const ModelChoice& model, const std::vector<std::string>& words);

}  // namespace consist::interpreter
