// bench_kernels [--device cuda] [--model qwen3-0.6b|llama-3-8b] [--batch 4] [--sequence 4096] [--only TEXT]
//
// Time of each kernel of a device at the shapes of a model, as part of a step that the device prepared: many launches in a row,
// over several sets of tensors where one would fit into a cache. Bytes count each input read once and each output written once,
// of tables only the rows in use. Beside them stands the rate of a plain copy.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/plugin/host.h"
#include "core/program/bfloat16.h"

namespace {

using namespace consist;

struct Model {
  std::string name;
  std::int64_t channels, heads, kv_heads, dim, hidden, vocabulary;
  bool qk_norm;
  DType gradient;  ///< of parameters; f32 goes with f32 masters and moments, bf16 with states in bf16 and stochastic rounding
};
const Model models[] = {
    {"qwen3-0.6b", 1024, 16, 8, 128, 3072, 151'936, true, DType::f32},
    {"llama-3-8b", 4096, 32, 8, 128, 14'336, 128'256, false, DType::bf16},
};

struct Settings {
  std::string device = "cuda", model, only;
  std::int64_t batch = 4, sequence = 4096;
};

std::int64_t bytes_of(const TensorType& type) {
  return type.shape.elements() * static_cast<std::int64_t>(size_of(type.dtype));
}

/// What is measured: an op on tensors of these types, and what its time is compared with.
struct Case {
  std::string label;
  std::string op;
  Types inputs;
  Attributes attributes;
  double flops = 0;             ///< 0: bound by memory
  std::int64_t bytes = 0;       ///< 0: all of all tensors
  std::int64_t vocabulary = 0;  ///< of ids and targets
  bool apart = false;           ///< outputs that may lie apart from what they update do
};

class Bench {
 public:
  explicit Bench(Device& device) : device_(device) {
    std::uint32_t state = 12345;
    for (std::int64_t i = 0; i < kPattern; ++i) {
      float sum = -2;  // of four uniform numbers, times sqrt(3): nearly normal
      for (int k = 0; k < 4; ++k) {
        state = state * 1664525 + 1013904223;
        sum += static_cast<float>(state >> 8) * 0x1p-24F;
      }
      for (std::size_t part = 0; part < 2; ++part) {
        wide_[part].push_back(part == 0 ? sum * 1.7320508F : std::abs(sum));
        narrow_[part].push_back(to_bfloat16(wide_[part].back()));
      }
      state = state * 1664525 + 1013904223;
      ids_.push_back(static_cast<std::int32_t>(state >> 1));
    }
  }

  /// Bytes per second, read and written, of the simplest kernel: 1 GiB of f32, cast to what it is.
  double copy_rate() {
    constexpr std::int64_t bytes = std::int64_t{1} << 30;
    Memory from(device_, bytes), to(device_, bytes);
    const TensorType type{DType::f32, {bytes / 4}};
    fill(from.at, type, {});
    const Attributes attributes{{"dtype", std::string("f32")}};
    Launch launch;
    launch.inputs = {{from.at, type.dtype, type.shape}};
    launch.outputs = {{to.at, type.dtype, type.shape}};
    const std::unique_ptr<Kernel> kernel = device_.make_kernel({"cast", launch.inputs, launch.outputs, attributes});
    launch.kernel = kernel.get();
    return 2 * static_cast<double>(bytes) / seconds({launch});
  }

  void run(const Case& c, double copy_rate) {
    const Op& op = registry().get(c.op);
    const Types outputs = op.infer(c.inputs, c.attributes);
    std::int64_t all = 0;
    for (const auto& type : c.inputs) all += type ? bytes_of(*type) : 0;
    for (const auto& type : outputs) all += type ? bytes_of(*type) : 0;
    const std::int64_t sets = std::clamp<std::int64_t>(divided_up(std::int64_t{600} << 20, std::max<std::int64_t>(all, 1)), 1, 8);
    std::vector<std::unique_ptr<Memory>> memories;
    std::vector<Launch> launches;
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (std::int64_t set = 0; set < sets; ++set) {
      Launch launch;
      const auto buffer_for = [&](const std::optional<TensorType>& type, bool filled) {
        if (!type) return Buffer{nullptr, DType::u8, Shape{0}};
        memories.push_back(std::make_unique<Memory>(device_, bytes_of(*type)));
        if (filled) fill(memories.back()->at, *type, c);
        return Buffer{memories.back()->at, type->dtype, type->shape};
      };
      for (const auto& type : c.inputs) launch.inputs.push_back(buffer_for(type, true));
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const int place = op.updates_in_place(static_cast<int>(i));
        const bool in_place = place >= 0 && !(c.apart && op.updates_apart(static_cast<int>(i))) &&
                              static_cast<std::size_t>(place) < launch.inputs.size() &&
                              !launch.inputs[static_cast<std::size_t>(place)].absent();
        launch.outputs.push_back(in_place ? launch.inputs[static_cast<std::size_t>(place)] : buffer_for(outputs[i], false));
      }
      kernels.push_back(device_.make_kernel({c.op, launch.inputs, launch.outputs, c.attributes}));
      if (!kernels.back()) {
        std::printf("%-34s no kernel\n", c.label.c_str());
        return;
      }
      launch.kernel = kernels.back().get();
      memories.push_back(std::make_unique<Memory>(device_, std::max<std::int64_t>(launch.kernel->workspace_bytes(), 256)));
      launch.workspace = memories.back()->at;
      launch.label = c.label;
      launches.push_back(launch);
    }
    const double time = seconds(launches);
    const double bytes = static_cast<double>(c.bytes != 0 ? c.bytes : all),
                 workspace = static_cast<double>(kernels[0]->workspace_bytes()) / (1 << 20);
    if (c.flops > 0) {
      std::printf("%-34s %10.1f us %9.1f TFLOP/s                        workspace %8.1f MiB\n", c.label.c_str(), time * 1e6,
                  c.flops / time * 1e-12, workspace);
    } else {
      std::printf("%-34s %10.1f us %9.0f GB/s %6.1f%% of copy %8.1f MB workspace %8.1f MiB\n", c.label.c_str(), time * 1e6,
                  bytes / time * 1e-9, 100 * bytes / time / copy_rate, bytes * 1e-6, workspace);
    }
    std::fflush(stdout);
  }

 private:
  struct Memory {
    Memory(Device& d, std::int64_t bytes) : device(d), at(d.allocate(MemorySpace::device, bytes)) {}
    ~Memory() { device.release(MemorySpace::device, at); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    Device& device;
    void* at;
  };

  static std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

  void fill(void* memory, const TensorType& type, const Case& c) {
    const std::int64_t count = type.shape.elements(), size = static_cast<std::int64_t>(size_of(type.dtype));
    std::vector<std::int32_t> ids;
    if (type.dtype == DType::i32) {
      for (std::int64_t i = 0; i < count; ++i)
        ids.push_back(static_cast<std::int32_t>(ids_[static_cast<std::size_t>(i % kPattern)] % c.vocabulary));
      device_.upload(memory, ids.data(), count * size);
      return;
    }
    if (c.op == "adamw" && type.shape == Shape{4}) {
      const float scalars[4] = {1e-3F, 0.1F, 0.05F, 3};
      device_.upload(memory, scalars, sizeof scalars);
      return;
    }
    const std::size_t part = c.op == "adamw" ? 1 : 0;  // second moments are not negative
    const void* pattern = type.dtype == DType::f32 ? static_cast<const void*>(wide_[part].data()) : narrow_[part].data();
    for (std::int64_t first = 0; first < count; first += kPattern) {
      device_.upload(static_cast<char*>(memory) + first * size, pattern, std::min(kPattern, count - first) * size);
    }
  }

  /// Of one launch: the median of five steps, each of which takes some 20 ms.
  double seconds(const std::vector<Launch>& launches) {
    const auto timed = [](Executable& step) {
      const auto begin = std::chrono::steady_clock::now();
      step.run();
      step.wait();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const auto repeated = [&](std::int64_t times) {
      std::vector<Launch> all;
      for (std::int64_t i = 0; i < times; ++i) all.insert(all.end(), launches.begin(), launches.end());
      std::unique_ptr<Executable> step = device_.prepare(all, false);
      timed(*step);  // loads code
      timed(*step);  // records the step where the device does
      return step;
    };
    const double once = timed(*repeated(1)) / static_cast<double>(launches.size());
    const std::int64_t times =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(0.02 / once / static_cast<double>(launches.size())), 1, 200);
    const std::unique_ptr<Executable> step = repeated(times);
    std::vector<double> measured;
    for (int i = 0; i < 5; ++i) measured.push_back(timed(*step));
    std::sort(measured.begin(), measured.end());
    return measured[2] / static_cast<double>(times * static_cast<std::int64_t>(launches.size()));
  }

  static constexpr std::int64_t kPattern = (std::int64_t{1} << 22) + 17;  // so that rows differ
  Device& device_;
  std::array<std::vector<float>, 2> wide_;  ///< nearly normal numbers, and positive ones
  std::array<std::vector<std::uint16_t>, 2> narrow_;
  std::vector<std::int32_t> ids_;
};

std::vector<Case> cases_of(const Model& m, const Settings& s, DType t) {
  const std::int64_t tokens = s.batch * s.sequence, size = static_cast<std::int64_t>(size_of(t)),
                     gradient_size = static_cast<std::int64_t>(size_of(m.gradient));
  const auto rows = [&](std::int64_t width) { return TensorType{t, {s.batch, s.sequence, width}}; };
  const auto per_row = [&] { return TensorType{DType::f32, {s.batch, s.sequence}}; };
  const auto gradient = [&](std::initializer_list<std::int64_t> extents) { return TensorType{m.gradient, Shape(extents)}; };
  const std::string g(name_of(m.gradient));
  const std::int64_t c = m.channels, q = m.heads * m.dim, k = m.kv_heads * m.dim;
  const TensorType ids{DType::i32, {s.batch, s.sequence}}, table{DType::f32, {s.sequence, m.dim}},
      lse{DType::f32, {s.batch, m.heads, s.sequence}};
  std::vector<Case> cases;
  const auto add = [&](Case made) { cases.push_back(std::move(made)); };

  add({"embedding", "embedding", {ids, TensorType{t, {m.vocabulary, c}}}, {}, 0, tokens * (4 + 2 * c * size), m.vocabulary});
  add({"embedding_grad, sets",
       "embedding_grad",
       {ids, rows(c), std::nullopt},
       {{"dtype", g}, {"vocabulary", m.vocabulary}},
       0,
       tokens * (4 + c * size) + m.vocabulary * c * gradient_size,
       m.vocabulary});
  add({"embedding_grad, adds",
       "embedding_grad",
       {ids, rows(c), gradient({m.vocabulary, c})},
       {{"dtype", g}, {"vocabulary", m.vocabulary}},
       0,
       tokens * (4 + c * size + 2 * c * gradient_size),
       m.vocabulary});
  add({"rms_norm", "rms_norm", {rows(c), std::nullopt, TensorType{t, {c}}}, {{"epsilon", 1e-6}}});
  add({"rms_norm + residual", "rms_norm", {rows(c), rows(c), TensorType{t, {c}}}, {{"epsilon", 1e-6}}});
  add({"rms_norm_grad, sets dx",
       "rms_norm_grad",
       {rows(c), rows(c), per_row(), TensorType{t, {c}}, std::nullopt, gradient({c})},
       {{"dtype", g}}});
  for (const bool apart : {false, true}) {
    add({apart ? "rms_norm_grad, adds apart" : "rms_norm_grad, adds to dx",
         "rms_norm_grad",
         {rows(c), rows(c), per_row(), TensorType{t, {c}}, rows(c), gradient({c})},
         {{"dtype", g}},
         0,
         tokens * c * size * 4,
         0,
         apart});
  }
  for (const std::int64_t width : {q, k}) {
    const std::string of = width == q ? ", q" : ", k";
    const std::optional<TensorType> w = m.qk_norm ? std::optional(TensorType{t, {m.dim}}) : std::nullopt;
    add({"rope" + std::string(m.qk_norm ? " + norm" : "") + of,
         "rope",
         {rows(width), table, w},
         {{"head_dim", m.dim}, {"epsilon", 1e-6}}});
    if (m.qk_norm) {
      add({"rope_grad + norm" + of,
           "rope_grad",
           {rows(width), table, rows(width), TensorType{DType::f32, {s.batch, s.sequence, width / m.dim}}, w, gradient({m.dim})},
           {{"head_dim", m.dim}, {"dtype", g}}});
    } else {
      add({"rope_grad" + of, "rope_grad", {rows(width), table}, {{"head_dim", m.dim}}});
    }
  }
  const double pairs = static_cast<double>(s.batch * m.heads * m.dim) * static_cast<double>(s.sequence) *
                       static_cast<double>(s.sequence) / 2;  // causal
  add({"attention", "attention", {rows(q), rows(k), rows(k)}, {{"head_dim", m.dim}}, 4 * pairs});
  add({"attention_grad",
       "attention_grad",
       {rows(q), rows(q), rows(k), rows(k), rows(q), lse},
       {{"head_dim", m.dim}},
       10 * pairs});
  add({"swiglu", "swiglu", {rows(m.hidden), rows(m.hidden)}, {}});
  add({"swiglu_grad", "swiglu_grad", {rows(m.hidden), rows(m.hidden), rows(m.hidden)}, {}});
  add({"add", "add", {rows(c), rows(c)}, {}, 0, tokens * c * size * 3});
  add({"cast f32 to bf16", "cast", {TensorType{DType::f32, {m.hidden * 8, c}}}, {{"dtype", std::string("bf16")}}});
  add({"linear_bias_grad, q", "linear_bias_grad", {rows(q), gradient({q})}, {{"dtype", g}}});
  const double product = 2.0 * static_cast<double>(tokens) * static_cast<double>(c) * static_cast<double>(m.hidden);
  add({"linear, up", "linear", {rows(c), TensorType{t, {m.hidden, c}}, std::nullopt}, {}, product});
  add({"linear_input_grad, up", "linear_input_grad", {rows(m.hidden), TensorType{t, {m.hidden, c}}, std::nullopt}, {}, product});
  add({"linear_weight_grad, up, adds",
       "linear_weight_grad",
       {rows(c), rows(m.hidden), gradient({m.hidden, c})},
       {{"dtype", g}},
       product});
  add({"lm_head_loss_grad",
       "lm_head_loss_grad",
       {rows(c), TensorType{t, {m.vocabulary, c}}, ids, std::nullopt},
       {{"scale", 1e-4}, {"dtype", g}},
       6.0 * static_cast<double>(tokens) * static_cast<double>(c) * static_cast<double>(m.vocabulary),
       0,
       m.vocabulary});

  // The parameters of four layers in one instruction.
  Types squares, states{TensorType{DType::f32, {4}}, TensorType{DType::f32, {}}};
  std::int64_t parameters = 0;
  for (int layer = 0; layer < 4; ++layer) {
    for (const Shape& shape : {Shape{q, c}, Shape{k, c}, Shape{k, c}, Shape{c, q}, Shape{m.hidden, c}, Shape{m.hidden, c},
                               Shape{c, m.hidden}, Shape{c}, Shape{c}}) {
      parameters += shape.elements();
      squares.push_back(TensorType{m.gradient, shape});
      states.push_back(TensorType{t, shape});
      states.push_back(TensorType{m.gradient, shape});
      states.push_back(m.gradient == DType::f32 && t != DType::f32 ? std::optional(TensorType{DType::f32, shape}) : std::nullopt);
      states.push_back(TensorType{m.gradient, shape});
      states.push_back(TensorType{m.gradient, shape});
    }
  }
  const bool mastered = m.gradient == DType::f32 && t != DType::f32;
  add({"sum_of_squares", "sum_of_squares", squares, {}});
  add({mastered          ? "adamw, f32 masters"
       : t == DType::f32 ? "adamw, f32"
                         : "adamw, stochastic rounding",
       "adamw",
       states,
       {{"beta1", 0.9},
        {"beta2", 0.95},
        {"epsilon", 1e-8},
        {"weight_decay", 0.1},
        {"stochastic_rounding", std::int64_t{m.gradient == DType::bf16}},
        {"seed", std::int64_t{1}}},
       0,
       parameters * (mastered ? size : 2 * size) + parameters * gradient_size * 5 + (mastered ? parameters * 8 : 0)});
  return cases;
}

int run(const Settings& settings) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  const std::shared_ptr<Device> device = host.make<Device>("device", settings.device, {});
  device->open(0, 1);
  std::printf("%s\n", device->info().name.c_str());
  Bench bench(*device);
  const double copy_rate = bench.copy_rate();
  std::printf("copy of 1 GiB (cast of f32 to f32): %.0f GB/s, read and written\n", copy_rate * 1e-9);
  for (const Model& model : models) {
    if (!settings.model.empty() && settings.model != model.name) continue;
    for (const DType dtype : {DType::bf16, DType::f32}) {
      if (dtype == DType::f32 && model.gradient != DType::f32) continue;
      std::printf("\n%s, %s, gradients %s, batch %lld, sequence %lld\n", model.name.c_str(), std::string(name_of(dtype)).c_str(),
                  std::string(name_of(model.gradient)).c_str(), static_cast<long long>(settings.batch),
                  static_cast<long long>(settings.sequence));
      for (const Case& c : cases_of(model, settings, dtype)) {
        if (c.label.find(settings.only) != std::string::npos) bench.run(c, copy_rate);
      }
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  Settings settings;
  const std::map<std::string, std::function<void(const std::string&)>> options = {
      {"--device", [&](const std::string& value) { settings.device = value; }},
      {"--model", [&](const std::string& value) { settings.model = value; }},
      {"--only", [&](const std::string& value) { settings.only = value; }},
      {"--batch", [&](const std::string& value) { settings.batch = std::stoll(value); }},
      {"--sequence", [&](const std::string& value) { settings.sequence = std::stoll(value); }},
  };
  try {
    for (int i = 1; i < count; i += 2) {
      const auto option = options.find(arguments[i]);
      if (option == options.end() || i + 1 == count) {
        std::fprintf(
            stderr,
            "bench_kernels [--device cuda] [--model qwen3-0.6b|llama-3-8b] [--batch 4] [--sequence 4096] [--only TEXT]\n");
        return 2;
      }
      option->second(arguments[i + 1]);
    }
    return run(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_kernels: %s\n", error.what());
    return 1;
  }
}
