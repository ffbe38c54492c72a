// Differentiation end to end: gradients that the device computes for small programs, against central differences of the same
// programs run in fp64 by the reference ops. Programs use tensors more than once, so that contributions are added, and parameters
// in two places.
#include <gtest/gtest.h>

#include "consist/layers.h"
#include "consist/rewrite.h"
#include "core/lower/prepared_program.h"
#include "core/program/verifier.h"
#include "tests/cpu/kernel_run.h"
#include "tests/reference/numerical.h"

namespace consist {
namespace {

using reference::Value;
using reference::Values;

constexpr std::int64_t kBatch = 2, kSequence = 5, kChannels = 12, kVocabulary = 11, kHeadDim = 4;

/// A program under construction: embedding in front, lm_head_loss behind, and what a test puts in between.
struct Model {
  Program program;
  Builder b{program};
  TensorId ids = b.input("ids", DType::i32, {kBatch, kSequence});
  TensorId targets = b.input("targets", DType::i32, {kBatch, kSequence});
  TensorId embed = b.parameter("embed", {kVocabulary, kChannels}, 0, 1, true);
  TensorId x = layers::embedding(b, ids, embed, "x");

  TensorId weight(const char* name, std::int64_t out, std::int64_t in) { return b.parameter(name, {out, in}, 0, 0.4F, true); }
  TensorId vector(const char* name, std::int64_t n) { return b.parameter(name, {n}, 1, 0.4F, false); }
  TensorId rope_table() {
    return b.constant("table", {kSequence, kHeadDim}, [](std::span<float> out) {
      for (std::int64_t p = 0; p < kSequence; ++p) {
        for (std::int64_t i = 0; i < kHeadDim / 2; ++i) {
          const double angle = static_cast<double>(p) / static_cast<double>(1 + 3 * i);
          out[static_cast<std::size_t>(p * kHeadDim + i)] = static_cast<float>(std::cos(angle));
          out[static_cast<std::size_t>(p * kHeadDim + kHeadDim / 2 + i)] = static_cast<float>(std::sin(angle));
        }
      }
    });
  }
  void finish(TensorId y, TensorId head) { program.loss = layers::lm_head_loss(b, y, head, targets, 0.1, "loss"); }
};

class Gradients {
 public:
  explicit Gradients(Model& model) : forward_(model.program) {
    for (const Parameter& p : forward_.parameters) {
      values_[static_cast<std::size_t>(p.tensor)] =
          reference::random_value(random_, DType::f32, forward_[p.tensor].shape, p.init_std, p.init_mean);
    }
    values_[static_cast<std::size_t>(model.ids)] = reference::random_ids(random_, {kBatch, kSequence}, 0, kVocabulary);
    values_[static_cast<std::size_t>(model.targets)] = reference::random_ids(random_, {kBatch, kSequence}, 0, kVocabulary);
    values_[static_cast<std::size_t>(model.targets)]->data[3] = -1;
    for (const Constant& constant : forward_.constants) {
      Value value = reference::zeros(DType::f32, forward_[constant.tensor].shape);
      std::vector<float> filled(value.data.size());
      constant.fill(filled);
      value.data.assign(filled.begin(), filled.end());
      values_[static_cast<std::size_t>(constant.tensor)] = value;
    }
  }

  /// Loss of the forward program in fp64.
  double loss() {
    for (const Instruction& i : forward_.instructions) {
      Values in;
      for (const TensorId id : i.inputs) in.push_back(id == no_tensor ? std::nullopt : values_[static_cast<std::size_t>(id)]);
      const Values out = reference::forward(i.op->name(), in, i.attributes);
      for (std::size_t o = 0; o < i.outputs.size(); ++o) {
        if (i.outputs[o] != no_tensor) values_[static_cast<std::size_t>(i.outputs[o])] = out[o];
      }
    }
    return values_[static_cast<std::size_t>(forward_.loss)]->data[0];
  }

  /// Differentiates, runs on the device and compares loss and every gradient.
  void check() {
    const double expected_loss = loss();
    Program program = forward_;
    differentiate(program, DType::f32);
    verify(program);
    // Gradients are read after the step, so their memory must not be used again.
    for (const Parameter& p : program.parameters) program[program[p.gradient].storage].role = Role::metric;
    program[program[program.loss].storage].role = Role::metric;

    const auto device = test::cpu_device({{"threads", "2"}});
    PreparedProgram prepared(program, *device, {});
    void* arena = device->allocate(MemorySpace::device, prepared.plan().bytes[0]);
    prepared.bind(arena, nullptr, false);
    const Program& made = prepared.program();
    for (std::size_t t = 0; t < forward_.tensors.size(); ++t) {
      const auto id = static_cast<TensorId>(t);
      const bool given = made[id].state || made[id].role == Role::input || is_constant(made, id);
      if (given && values_[t]) {
        const test::HostTensor tensor = test::to_host(*values_[t]);
        device->upload(prepared.buffer(id).data, tensor.bytes.data(), static_cast<std::int64_t>(tensor.bytes.size()));
      }
    }
    prepared.executable().run();
    prepared.executable().wait();

    const auto found = [&](TensorId id) {
      test::HostTensor tensor(DType::f32, made[id].shape);
      device->download(tensor.bytes.data(), prepared.buffer(id).data, static_cast<std::int64_t>(tensor.bytes.size()));
      return test::to_value(tensor);
    };
    EXPECT_NEAR(found(made.loss).data[0], expected_loss, 2e-6 * expected_loss);
    for (const Parameter& p : made.parameters) {
      Value expected = found(p.gradient);
      expected.data = reference::numerical_gradient(values_[static_cast<std::size_t>(p.tensor)]->data, [this] { return loss(); });
      test::expect_close(found(p.gradient), expected, 1e-5, p.name);
    }
    device->release(MemorySpace::device, arena);
  }

 private:
  static bool is_constant(const Program& program, TensorId id) {
    return std::any_of(program.constants.begin(), program.constants.end(), [&](const Constant& c) { return c.tensor == id; });
  }

  Program forward_;
  std::mt19937 random_{23};
  Values values_ = Values(forward_.tensors.size());
};

TEST(Gradient, EmbeddingAndLoss) {
  Model m;
  m.finish(m.x, m.weight("head", kVocabulary, kChannels));
  Gradients(m).check();
}

TEST(Gradient, TiedEmbedding) {
  Model m;
  m.finish(m.x, m.embed);
  Gradients(m).check();
}

TEST(Gradient, LinearWithAndWithoutBias) {
  Model m;
  const TensorId y = layers::linear(m.b, m.x, m.weight("w1", 7, kChannels), m.vector("bias", 7), "y");
  m.finish(layers::linear(m.b, y, m.weight("w2", kChannels, 7), no_tensor, "z"), m.embed);
  Gradients(m).check();
}

TEST(Gradient, OneInputOfSeveralLinears) {
  Model m;
  const TensorId gate = layers::linear(m.b, m.x, m.weight("gate", 9, kChannels), no_tensor, "gate");
  const TensorId up = layers::linear(m.b, m.x, m.weight("up", 9, kChannels), no_tensor, "up");
  const TensorId h = layers::swiglu(m.b, gate, up, "h");
  m.finish(layers::linear(m.b, h, m.weight("down", kChannels, 9), no_tensor, "down"), m.embed);
  Gradients(m).check();
}

TEST(Gradient, OneWeightInTwoPlaces) {
  Model m;
  const TensorId w = m.weight("w", kChannels, kChannels), bias = m.vector("bias", kChannels);
  const TensorId y = layers::linear(m.b, m.x, w, bias, "y");
  m.finish(layers::linear(m.b, y, w, bias, "z"), m.embed);
  Gradients(m).check();
}

TEST(Gradient, NormsOfAResidualStream) {
  Model m;
  const TensorId w = m.vector("norm", kChannels);
  const layers::Normed first = layers::rms_norm(m.b, m.x, no_tensor, w, 1e-3, "first");
  const TensorId y = layers::linear(m.b, first.y, m.weight("w", kChannels, kChannels), no_tensor, "y");
  const layers::Normed second = layers::rms_norm(m.b, y, first.residual, m.vector("norm2", kChannels), 1e-3, "second");
  const TensorId z = layers::linear(m.b, second.y, m.weight("w2", kChannels, kChannels), no_tensor, "z");
  m.finish(layers::rms_norm(m.b, z, second.residual, w, 1e-3, "third").y, m.embed);  // the first norm's weight again
  Gradients(m).check();
}

TEST(Gradient, AttentionWithGroupsRopeAndNormedHeads) {
  for (const std::int64_t kv_heads : {1, 3}) {
    Model m;
    const TensorId table = m.rope_table();
    const auto heads = [&](const char* name, std::int64_t n) {
      return layers::linear(m.b, m.x, m.weight(name, n * kHeadDim, kChannels), no_tensor, name);
    };
    const TensorId q = layers::rope(m.b, heads("q", 3), table, m.vector("q_norm", kHeadDim), kHeadDim, 1e-3, "q.rope");
    const TensorId k = layers::rope(m.b, heads("k", kv_heads), table, m.vector("k_norm", kHeadDim), kHeadDim, 1e-3, "k.rope");
    m.finish(layers::attention(m.b, q, k, heads("v", kv_heads), kHeadDim, "o"), m.embed);
    Gradients(m).check();
  }
}

TEST(Gradient, AttentionOfOneTensorWithItself) {
  Model m;
  const TensorId turned = layers::rope(m.b, m.x, m.rope_table(), no_tensor, kHeadDim, 1e-3, "turned");
  m.finish(layers::attention(m.b, turned, turned, m.x, kHeadDim, "o"), m.embed);
  Gradients(m).check();
}

TEST(Gradient, ATensorThatIsReadAgainAfterItsNorm) {
  Model m;
  const layers::Normed normed = layers::rms_norm(m.b, m.x, no_tensor, m.vector("norm", kChannels), 1e-3, "norm");
  m.finish(layers::swiglu(m.b, m.x, normed.y, "h"), m.weight("head", kVocabulary, kChannels));
  Gradients(m).check();
}

TEST(Gradient, ExpressionsOfActivationsAndOfWeights) {
  Model m;
  const TensorId gate = layers::linear(m.b, m.x, m.weight("gate", 9, kChannels), no_tensor, "gate");
  const TensorId up = layers::linear(m.b, m.x, m.weight("up", 9, kChannels), no_tensor, "up");
  const TensorId h = layers::map(m.b, "gelu_tanh(a)*b", {gate, up}, "h");
  const TensorId y = layers::linear(m.b, h, m.weight("down", kChannels, 9), no_tensor, "down");
  const TensorId w = layers::map(m.b, "1+a", {m.vector("norm", kChannels)}, "w");
  const layers::Normed normed = layers::rms_norm(m.b, y, no_tensor, w, 1e-3, "normed");
  m.finish(layers::map(m.b, "a+b[c]*tanh(b[c]*c)", {m.x, m.vector("gain", kChannels), normed.y}, "sum"), m.embed);
  Gradients(m).check();
}

// A norm of the model's own, a softmax without its largest, and columns that are read by rows.
TEST(Gradient, SumsOverChannelsAndWhatReadsThem) {
  Model m;
  const TensorId gain = m.vector("gain", kChannels);
  const TensorId mean = layers::reduce(m.b, layers::Reduction::mean, "a*a", {m.x}, "mean");
  const TensorId normed = layers::map(m.b, "a*rsqrt(b[r]+0.01)*c[c]", {m.x, mean, gain}, "normed");
  const TensorId most = layers::reduce(m.b, layers::Reduction::max, "a", {normed}, "most");
  const TensorId sum = layers::reduce(m.b, layers::Reduction::sum, "exp(a-b[r])*c[c]", {normed, most, gain}, "sum");
  const TensorId rows = layers::map(m.b, "tanh(a)+1", {sum}, "rows");
  const TensorId plain = layers::reduce(m.b, layers::Reduction::sum, "a+b[r]", {normed, rows}, "plain");
  m.finish(layers::map(m.b, "exp(a-b[r])/c[r]+tanh(d[r])", {normed, most, rows, plain}, "y"), m.embed);
  Gradients(m).check();
}

// Losses of a plugin's own: what the model gives to the targets, of which one counts nothing, added up over each sequence, and a
// denominator of scaled logits.
TEST(Gradient, TotalsOfTargets) {
  Model m;
  const TensorId logits = layers::linear(m.b, m.x, m.weight("head", kVocabulary, kChannels), no_tensor, "logits");
  const TensorId likely = layers::log_probability(m.b, logits, m.targets, "likely");
  const TensorId denominator = layers::reduce_rows(m.b, layers::Reduction::logsumexp, "0.5*a", {logits}, "denominator");
  const TensorId shares =
      layers::reduce_rows(m.b, layers::Reduction::sum, "square(exp(0.5*a-b[r]))", {logits, denominator}, "shares");
  const TensorId of_sequence =
      layers::reduce_rows(m.b, layers::Reduction::sum, "a*b+c", {likely, shares, denominator}, "sequence");
  m.program.loss = layers::total(m.b, "0.3*softplus(0.2*a+0.5)", {of_sequence}, "loss");
  Gradients(m).check();
}

// The gradient of either output alone, and of both.
TEST(Gradient, LogProbabilitiesOfAHead) {
  for (const int given : {1, 2, 3}) {
    SCOPED_TRACE(given);
    Model m;
    const layers::LogProbability made =
        layers::lm_head_log_probability(m.b, m.x, m.weight("head", kVocabulary, kChannels), m.targets, "likely");
    std::vector<TensorId> read;
    if ((given & 1) != 0) read.push_back(made.log_probability);
    if ((given & 2) != 0) read.push_back(made.denominator);
    m.program.loss = layers::total(m.b, given == 3 ? "-0.1*a*b" : "0.1*square(a)", read, "loss");
    Gradients(m).check();
  }
}

// The gradient by the summands is the same everywhere.
TEST(Gradient, ATotalOfSummandsAsTheyAre) {
  Model m;
  m.program.loss = layers::total(m.b, "0.1*a+1", {layers::map(m.b, "tanh(a)", {m.x}, "y")}, "loss");
  Gradients(m).check();
}

// Heads of 4 and 2 channels of their own and 2 that all share; of one split a part is not read.
TEST(Gradient, PartsOfHeads) {
  Model m;
  const std::vector<TensorId> parts = layers::split(m.b, m.x, {3, 1}, "parts");
  const TensorId shared = layers::linear(m.b, m.x, m.weight("shared", 2, kChannels), no_tensor, "shared.x");
  const TensorId joined = layers::concat(m.b, {parts[1], parts[0]}, 3, "joined", {shared});
  const std::vector<TensorId> again = layers::split(m.b, joined, {2, 3, 1}, "again");
  const TensorId y = layers::linear(m.b, again[1], m.weight("w", kChannels, 9), no_tensor, "y");
  m.finish(y, m.embed);
  Gradients(m).check();
}

// The gradient of a sum is that of both summands, of which one gets another contribution.
TEST(Gradient, AnExpressionBesideASumThatOthersShare) {
  Model m;
  const TensorId y = layers::map(m.b, "a*b[c]", {m.x, m.vector("gain", kChannels)}, "y");
  const TensorId z = layers::map(m.b, "tanh(a)", {m.x}, "z");
  const TensorId sum = m.b.emit_one("add", {y, z}, {}, "sum");
  m.finish(layers::map(m.b, "a*a+exp(0.1*b)", {sum, z}, "all"), m.embed);
  Gradients(m).check();
}

// Its gradients are one expression, which reads the vector as two inputs.
TEST(Gradient, AVectorReadByChannelsAndByAnElement) {
  Model m;
  const TensorId gain = m.b.constant("gain", {kChannels}, [](std::span<float> out) {
    for (std::size_t c = 0; c < out.size(); ++c) out[c] = 0.3F + 0.1F * static_cast<float>(c);
  });
  const TensorId y = layers::map(m.b, "a*b[c]", {m.x, gain}, "y"), z = layers::map(m.b, "tanh(a*b[5])", {m.x, gain}, "z");
  m.finish(layers::map(m.b, "a*b", {y, z}, "yz"), m.embed);
  Gradients(m).check();
}

TEST(Gradient, LayerNorms) {
  Model m;
  const TensorId y = layers::layer_norm(m.b, m.x, m.vector("weight", kChannels), m.vector("bias", kChannels), 1e-3, "y");
  const TensorId z =
      layers::layer_norm(m.b, layers::map(m.b, "a+tanh(b)", {m.x, y}, "sum"), m.vector("last", kChannels), no_tensor, 1e-3, "z");
  m.finish(z, m.embed);
  Gradients(m).check();
}

// Of heads of 6 channels the first 4 are turned.
TEST(Gradient, RotaryEmbeddingOfSomeChannels) {
  Model m;
  m.finish(layers::rope(m.b, m.x, m.rope_table(), no_tensor, 6, 0, "turned"), m.embed);
  Gradients(m).check();
}

TEST(Gradient, SeveralExpressionsOfOneTensor) {
  Model m;
  const std::vector<TensorId> made = m.b.emit("map", {m.x}, {{"f", std::string("tanh(a);a*a;2*a")}}, {"t", "s", "d"});
  m.finish(layers::map(m.b, "a*b+c", made, "sum"), m.embed);
  Gradients(m).check();
}

}  // namespace
}  // namespace consist
