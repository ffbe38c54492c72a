#include "core/record/step_trace.h"

#include <nlohmann/json.hpp>
#include <set>

#include "consist/op.h"
#include "core/program/operands.h"
#include "core/program/printer.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

/// Names a process or a thread of the timeline.
Json name_event(const char* kind, int rank, int queue, const std::string& name) {
  return {{"name", kind}, {"ph", "M"}, {"pid", rank}, {"tid", queue}, {"args", {{"name", name}}}};
}

}  // namespace

std::string trace_events(const Program& program, std::span<const LaunchTime> times, int rank, std::string_view host,
                         std::chrono::system_clock::time_point began) {
  const double origin = std::chrono::duration<double, std::micro>(began.time_since_epoch()).count();
  std::string text = name_event("process_name", rank, 0, "rank " + std::to_string(rank) + " on " + std::string(host)).dump();
  const QueueTable table(program);
  std::set<std::size_t> queues;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Instruction& instruction = program.instructions.at(i);
    if (!instruction.op->touches_memory()) continue;
    const std::size_t queue = table.number_of(instruction.queue);
    if (queues.insert(queue).second)
      text += ",\n" + name_event("thread_name", rank, queue, text_of(instruction.queue, program.mesh)).dump();
    const Json event{{"name", instruction.op->name()},
                     {"cat", name_of(instruction.tag.phase)},
                     {"ph", "X"},
                     {"pid", rank},
                     {"tid", queue},
                     {"ts", origin + 1e6 * times[i].begin},
                     {"dur", 1e6 * times[i].seconds()},
                     {"args",
                      {{"instruction", i},
                       {"output", first_output_name(program, instruction)},
                       {"layer", instruction.tag.layer},
                       {"micro_batch", instruction.tag.micro_batch}}}};
    text += ",\n" + event.dump();
  }
  return text;
}

void write_trace_file(const Output& output, const std::string& events) {
  write_output(output, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + events + "\n]}\n");
}

void write_trace(Job& job, const Output& output, const std::string& events) {
  const std::vector<std::string> of_ranks = job.gather("trace", events, job.timeout());
  if (job.rank() != 0) return;
  std::string all = events;
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) all += ",\n" + of_ranks[rank];
  write_trace_file(output, all);
}

}  // namespace consist
