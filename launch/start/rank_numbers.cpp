#include "launch/start/rank_numbers.h"

#include <sstream>

namespace consist::launch {

std::vector<std::vector<double>> numbers_of_ranks(Job& job, const std::string& key, const std::vector<double>& own) {
  std::ostringstream text;
  text.precision(17);
  for (const double number : own) text << number << ' ';
  job.put(key + "/" + std::to_string(job.rank()), text.str());
  std::vector<std::vector<double>> all;
  for (int rank = 0; rank < job.size(); ++rank) {
    std::istringstream numbers(job.get(key + "/" + std::to_string(rank), job.timeout()));
    all.emplace_back(own.size());
    for (double& number : all.back()) numbers >> number;
  }
  return all;
}

}  // namespace consist::launch
