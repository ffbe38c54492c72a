#include "launch/templates/part_template.h"

#include <vector>

#include "consist/error.h"
#include "core/base/did_you_mean.h"

namespace consist::launch {
namespace {

constexpr TemplateFile strategy_files[] = {{"ddp-plain/CMakeLists.txt", "CMakeLists.txt"},
                                           {"ddp-plain/strategy.cpp", "strategy.cpp"}};
constexpr Replacement strategy_names[] = {{"ddp-plain", "{name}"}, {"DdpPlain", "{Class}"}};

constexpr TemplateFile optimizer_files[] = {{"schedule-free/CMakeLists.txt", "CMakeLists.txt"},
                                            {"schedule-free/schedule_free.cpp", "optimizer.cpp"}};
constexpr Replacement optimizer_names[] = {
    {"my-schedule-free", "{name}"}, {"ScheduleFree", "{Class}"}, {"schedule_free.cpp", "optimizer.cpp"}};

constexpr TemplateFile op_files[] = {{"squared-relu/CMakeLists.txt", "CMakeLists.txt"},
                                     {"squared-relu/op.cpp", "op.cpp"},
                                     {"squared-relu/cpu_kernels.cpp", "cpu_kernels.cpp"},
                                     {"squared-relu/cuda_kernels.cu", "cuda_kernels.cu"},
                                     {"squared-relu/model.cpp", "model.cpp"}};
constexpr Replacement op_names[] = {{"squared-relu", "{name}"},
                                    {"squared_relu", "{snake}"},
                                    {"SquaredRelu", "{Class}"},
                                    {"plain-decoder", "{name}-decoder"},
                                    {"PlainDecoder", "{Class}Decoder"}};

// The model of the op, which needs no op of its own if an expression stands in its place.
constexpr TemplateFile model_files[] = {{"trapezoid/CMakeLists.txt", "CMakeLists.txt"}, {"squared-relu/model.cpp", "model.cpp"}};
constexpr Replacement model_names[] = {
    {"trapezoid KIND schedule SOURCES schedule.cpp", "{name} KIND model SOURCES model.cpp"},
    {"Trapezoid", "{Class}"},
    {"plain-decoder", "{name}"},
    {"PlainDecoder", "{Class}"},
    {"has the op squared_relu between its two linears", "squares the ReLU between its two linears"},
    {R"(b.emit_one("squared_relu", {up}, {}, prefix + "mlp.act"))",
     R"x(layers::map(b, "square(relu(a))", {up}, prefix + "mlp.act"))x"},
    {"squared ReLU, which needs the kernels squared-relu", "squared ReLU"}};

constexpr TemplateFile loss_files[] = {{"trapezoid/CMakeLists.txt", "CMakeLists.txt"}, {"losses/z_loss.cpp", "loss.cpp"}};
constexpr Replacement loss_names[] = {{"trapezoid KIND schedule SOURCES schedule.cpp", "{name} KIND loss SOURCES loss.cpp"},
                                      {"Trapezoid", "{Class}"},
                                      {"my-z-loss", "{name}"},
                                      {"ZLoss", "{Class}"}};

constexpr TemplateFile dataset_files[] = {{"masked-ids/CMakeLists.txt", "CMakeLists.txt"},
                                          {"masked-ids/dataset.cpp", "dataset.cpp"}};
constexpr Replacement dataset_names[] = {{"masked-ids", "{name}"}, {"MaskedIds", "{Class}"}};
constexpr std::string_view dataset_examples = R"(# Examples to read.
set(examples "")
foreach(example RANGE 1 400)
  math(EXPR id "${example} * 7 % 300")
  string(APPEND examples "{\"ids\": [${id}, ${example}, 2, 9, 11, ${id}, 8], \"mask\": [0, 0, 1, 1, 1, 1, 1]}\n")
endforeach()
file(WRITE ${CMAKE_BINARY_DIR}/examples.jsonl "${examples}")
)";

constexpr TemplateFile observer_files[] = {{"notes-observer/CMakeLists.txt", "CMakeLists.txt"},
                                           {"notes-observer/observer.cpp", "observer.cpp"}};
constexpr Replacement observer_names[] = {{"NotesObserver", "{Class}"},
                                          {"Notes", "{Class}"},
                                          {"notes KIND", "{name} KIND"},
                                          {"--notes.", "--{name}."},
                                          {"\"notes\"", "\"{name}\""}};

constexpr TemplateFile schedule_files[] = {{"trapezoid/CMakeLists.txt", "CMakeLists.txt"},
                                           {"trapezoid/schedule.cpp", "schedule.cpp"}};
constexpr Replacement schedule_names[] = {{"trapezoid", "{name}"}, {"Trapezoid", "{Class}"}};

constexpr PartTemplate templates[] = {
    {.kind = "strategy",
     .plugin_kind = "strategy",
     .edit = "It sums gradients at the end of backward; `partition()` and `schedule()` in strategy.cpp decide where tensors lie "
             "and what is sent when",
     .files = strategy_files,
     .replacements = strategy_names,
     .train = "--model llama-tiny --dataset synthetic --ranks 2 --strategy {name}"},
    {.kind = "optimizer",
     .plugin_kind = "optimizer",
     .edit = "It is schedule-free AdamW; the rule in `update()` of optimizer.cpp is expressions, which every device computes",
     .files = optimizer_files,
     .replacements = optimizer_names,
     .train = "--model llama-tiny --dataset synthetic --optimizer {name}"},
    {.kind = "op",
     .plugin_kind = "kernels",
     .edit = "It is max(x, 0) squared: op.cpp has its rules, cpu_kernels.cpp and cuda_kernels.cu its kernels, model.cpp a model "
             "that uses it. An op that "
             "is an expression of elements needs neither: `layers::map` takes it",
     .files = op_files,
     .replacements = op_names,
     .train = "--model {name}-decoder-tiny --dataset synthetic",
     .beside = "{name}-decoder"},
    {.kind = "model",
     .plugin_kind = "model",
     .edit = "It is a small decoder; `build()` in model.cpp writes its forward part",
     .files = model_files,
     .replacements = model_names,
     .train = "--model {name}-tiny --dataset synthetic"},
    {.kind = "loss",
     .plugin_kind = "loss",
     .edit = "It is the next token's cross-entropy with a z-loss; `build()` in loss.cpp makes the loss, by expressions, which "
             "every device computes",
     .files = loss_files,
     .replacements = loss_names,
     .train = "--model llama-tiny --dataset synthetic --loss {name}"},
    {.kind = "dataset",
     .plugin_kind = "dataset",
     .edit = "It reads token ids with loss masks, one JSON object a line; `open()` in dataset.cpp reads the file. The build "
             "writes one, examples.jsonl",
     .files = dataset_files,
     .replacements = dataset_names,
     .train = "--model llama-tiny --dataset {name} --{name}.file build/examples.jsonl",
     .check = "--option file=build/examples.jsonl",
     .prepare = dataset_examples},
    {.kind = "observer",
     .plugin_kind = "observer",
     .edit = "It writes a line for each step; `step()` in observer.cpp is told of one",
     .files = observer_files,
     .replacements = observer_names,
     .train = "--model llama-tiny --dataset synthetic --observe {name} --{name}.file build/notes.csv",
     .has_suite = false},
    {.kind = "schedule",
     .plugin_kind = "schedule",
     .edit = "It rises, stays and falls; `rate()` in schedule.cpp is the rate of a step",
     .files = schedule_files,
     .replacements = schedule_names,
     .train = "--model llama-tiny --dataset synthetic --schedule {name}"},
};

}  // namespace

std::span<const PartTemplate> part_templates() {
  return templates;
}

const PartTemplate& part_template(std::string_view kind) {
  std::vector<KnownName> known;
  std::string all;
  for (const PartTemplate& one : templates) {
    if (one.kind == kind) return one;
    known.push_back({std::string(one.kind)});
    all += " " + std::string(one.kind);
  }
  throw UsageError("there is no template of the kind '" + std::string(kind) + "'. There are:" + all + "." +
                   did_you_mean(kind, known) + " docs/plugins.md describes all kinds of parts");
}

}  // namespace consist::launch
