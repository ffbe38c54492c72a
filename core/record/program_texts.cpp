#include "core/record/program_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/job/long_text.h"
#include "core/program/printer.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

std::string key_of(int rank) {
  return "program." + std::to_string(rank);
}

Json json_of(const ProgramText& program) {
  return {{"text", program.text}, {"left_out", program.left_out}};
}

}  // namespace

ProgramText program_text(const Program& program, std::size_t most) {
  ProgramText result{.text = to_text(program)};
  if (result.text.size() <= most) return result;
  const std::size_t end = result.text.rfind('\n', most == 0 ? 0 : most - 1);
  const std::size_t kept = end == std::string::npos ? 0 : end + 1;
  result.left_out =
      static_cast<std::size_t>(std::count(result.text.begin() + static_cast<std::ptrdiff_t>(kept), result.text.end(), '\n'));
  result.text.resize(kept);
  return result;
}

std::string programs_json(Job& job, const Program& own, int ranks) {
  const std::vector<int> classes = own.stage_axis < 0 ? std::vector<int>{0} : own.mesh.group(0, own.stage_axis);
  if (std::find(classes.begin(), classes.end(), job.rank()) == classes.end()) return {};
  const Json of_this = json_of(program_text(own, most_program_bytes / classes.size()));
  if (job.rank() != 0) {
    put_long_text(job, key_of(job.rank()), of_this.dump(-1, ' ', false, Json::error_handler_t::replace));
    return {};
  }
  Json json{{"classes", Json::array()}};
  for (const int rank : classes) {
    Json whole{{"rank", rank}, {"ranks", ranks / static_cast<int>(classes.size())}};
    whole.update(rank == 0 ? of_this : Json::parse(get_long_text(job, key_of(rank))));
    json["classes"].push_back(std::move(whole));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace consist
