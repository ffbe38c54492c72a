// The collectives of a job that are made of others.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "consist/error.h"
#include "consist/job.h"
#include "consist/wire.h"

namespace consist {
namespace {

std::string bytes_of(const std::vector<double>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
}

std::vector<double> numbers_of(std::string_view bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
  return numbers;
}

double combined(double a, double b, ReduceOp how) {
  if (how == ReduceOp::sum || std::isnan(a)) return a + b;
  if (std::isnan(b)) return b;
  return how == ReduceOp::max ? std::max(a, b) : std::min(a, b);
}

int member_at(std::span<const int> members, std::size_t index) {
  return members.empty() ? static_cast<int>(index) : members[index];
}

}  // namespace

std::vector<std::string> Job::all_gather(std::string_view name, std::string_view bytes, std::chrono::milliseconds timeout,
                                         std::span<const int> members) {
  network::WireWriter all;
  for (const std::string& text : gather(name, bytes, timeout, members))
    all.integer(static_cast<std::uint64_t>(text.size())).bytes(text);
  const std::string packed = broadcast(name, all.take(), timeout, members);
  std::vector<std::string> texts;
  for (network::WireReader reader(packed); !reader.at_end();) texts.emplace_back(reader.bytes(reader.integer<std::uint64_t>()));
  return texts;
}

std::vector<double> Job::reduce(std::string_view name, const std::vector<double>& numbers, ReduceOp how,
                                std::chrono::milliseconds timeout, std::span<const int> members) {
  const std::vector<std::string> given = gather(name, bytes_of(numbers), timeout, members);
  std::vector<double> result = numbers;
  for (std::size_t i = 1; i < given.size(); ++i) {
    const std::vector<double> others = numbers_of(given[i]);
    if (others.size() != result.size()) {
      throw ProgramError("rank " + std::to_string(member_at(members, i)) + " gives " + std::to_string(others.size()) +
                         " numbers to '" + std::string(name) + "', rank " + std::to_string(rank()) + " gives " +
                         std::to_string(result.size()));
    }
    for (std::size_t n = 0; n < result.size(); ++n) result[n] = combined(result[n], others[n], how);
  }
  return numbers_of(broadcast(name, bytes_of(result), timeout, members));
}

}  // namespace consist
