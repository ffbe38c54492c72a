// Programs of tp-sp: their text, the bytes that they move, what they keep in memory, and what runs beside collectives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "consist/error.h"
#include "core/compile/compile.h"
#include "core/cost/collective_stream.h"
#include "core/lower/memory_plan.h"
#include "core/lower/waits.h"
#include "core/plugin/host.h"
#include "core/program/printer.h"
#include "tests/golden_text.h"
#include "tests/program/tiny_model.h"

namespace consist {
namespace {

using StrategyOptions = std::map<std::string, std::string>;

struct Configuration {
  int ranks = 2;  ///< of the tensor axis
  int data = 1;
  std::string data_strategy = "ddp";
  int accumulation = 1;
  std::string precision = "fp32";
  StrategyOptions options;
  test::TinyShape shape;
  std::int64_t micro_batch = 2, sequence = 8;
  bool pack_linears = false;
};

class TensorParallelProgram : public ::testing::Test {
 protected:
  CompileRequest request(const Configuration& m) {
    model_.emplace(m.shape);
    strategy_ = host_.make<ParallelStrategy>("strategy", "tp-sp", m.options);
    data_ = host_.make<ParallelStrategy>("strategy", m.data_strategy, {});
    precision_ = host_.make<Precision>("precision", m.precision, {});
    CompileRequest request{.architecture = &*model_,
                           .precision = precision_.get(),
                           .strategies = {{"tp-sp", strategy_.get(), m.ranks}, {m.data_strategy, data_.get(), m.data}},
                           .ranks = m.ranks * m.data,
                           .micro_batch = m.micro_batch,
                           .sequence = m.sequence,
                           .accumulation = m.accumulation,
                           .pack_linears = m.pack_linears};
    return request;
  }
  Program step(const Configuration& m) {
    const CompileRequest r = request(m);
    return compile_step(r, lay_out(r.strategies, r.ranks));
  }
  static std::string text(Program program) {
    insert_waits(program, plan_memory(program, {}), {});
    return to_text(program);
  }

  PluginHost host_{{CONSIST_BINARY_DIR "/lib/consist/plugins"}};
  std::optional<test::TinyModel> model_;
  std::shared_ptr<ParallelStrategy> strategy_, data_;
  std::shared_ptr<Precision> precision_;
};

// One key/value head for two ranks, a tied vocabulary in two chunks.
TEST_F(TensorParallelProgram, Golden) {
  test::expect_golden("tp_sp", text(step({.options = {{"logits-bytes", "600"}}})));
}
TEST_F(TensorParallelProgram, GoldenPlain) {
  test::expect_golden("tp_plain", text(step({.precision = "bf16",
                                             .options = {{"sequence-parallel", "false"}},
                                             .shape = {.layers = 1, .kv_heads = 2, .tied = false}})));
}
// One sequence, cut into stretches.
TEST_F(TensorParallelProgram, GoldenOverlap) {
  test::expect_golden(
      "tp_sp_overlap",
      text(step({.options = {{"overlap-parts", "2"}}, .shape = {.layers = 1, .heads = 4, .kv_heads = 2}, .micro_batch = 1})));
}
// Two sequences that take turns.
TEST_F(TensorParallelProgram, GoldenHalves) {
  test::expect_golden("tp_sp_halves",
                      text(step({.options = {{"overlap-parts", "2"}}, .shape = {.layers = 1, .heads = 4, .kv_heads = 2}})));
}
TEST_F(TensorParallelProgram, GoldenEvaluation) {
  const CompileRequest r = request({.shape = {.layers = 1}});
  test::expect_golden("tp_sp_evaluation", text(compile_evaluation(r, lay_out(r.strategies, r.ranks))));
}

/// Bytes that a rank sends for residual-stream tensors [batch, sequence, channels] over rings, by collective.
std::map<std::string, double> activation_bytes(const Program& p) {
  std::map<std::string, double> sent;
  const int axis = p.mesh.find("tensor");
  const double ranks = p.mesh.size_of(axis);
  for (const Instruction& i : p.instructions) {
    if (!i.op->is_collective() || i.queue.axes() != axis) continue;
    const Tensor& t = p[i.inputs[0]];
    if (t.role != Role::activation || t.dtype == DType::i32 || t.shape.rank() != 3 || t.shape[2] != 16) continue;
    const auto bytes = static_cast<double>(p.bytes(i.inputs[0]));
    const std::string op(i.op->name());
    sent[op] += op == "all_reduce"   ? 2 * bytes * (ranks - 1) / ranks
                : op == "all_gather" ? bytes * (ranks - 1)
                                     : bytes * (ranks - 1) / ranks;
  }
  return sent;
}

// Narayanan et al. (2021) and Korthikanti et al. (2022): four all_reduces per layer, or four pairs of all_gather and
// reduce_scatter, which are the same bytes; one more for each of the embedding and the head.
TEST_F(TensorParallelProgram, SequenceParallelismMovesTheBytesOfPlainTensorParallelism) {
  for (const std::int64_t layers : {1, 3}) {
    for (const int ranks : {2, 4}) {
      for (const int accumulation : {1, 3}) {
        Configuration m{.ranks = ranks, .accumulation = accumulation, .shape = {.layers = layers, .heads = 4, .kv_heads = 2}};
        const double stream = 2.0 * 8 * 16 * sizeof(float);
        const double all_reduce = 2 * stream * (ranks - 1) / ranks;
        const double expected = static_cast<double>((4 * layers + 2) * accumulation) * all_reduce;
        auto sequence = activation_bytes(step(m));
        EXPECT_EQ(sequence["all_reduce"], 0);
        EXPECT_DOUBLE_EQ(sequence["all_gather"], expected / 2);
        EXPECT_DOUBLE_EQ(sequence["reduce_scatter"], expected / 2);
        m.options["sequence-parallel"] = "false";
        auto plain = activation_bytes(step(m));
        EXPECT_DOUBLE_EQ(plain["all_reduce"], expected);
        EXPECT_EQ(plain["all_gather"] + plain["reduce_scatter"], 0);
      }
    }
  }
}

std::int64_t bytes_of_norms(const Program& p) {
  std::int64_t bytes = 0;
  for (const Instruction& i : p.instructions) {
    if (i.op->name() != "rms_norm") continue;
    for (TensorId id : i.outputs) bytes += id == no_tensor ? 0 : p.bytes(id);
  }
  return bytes;
}
std::int64_t bytes_of_role(const Program& p, Role role, int least_rank) {
  std::int64_t bytes = 0;
  for (std::size_t t = 0; t < p.tensors.size(); ++t) {
    const Tensor& tensor = p.tensors[t];
    if (tensor.role == role && tensor.state && tensor.storage == static_cast<TensorId>(t) && tensor.shape.rank() >= least_rank)
      bytes += p.bytes(static_cast<TensorId>(t));
  }
  return bytes;
}

/// Bytes of activations that forward makes and backward reads.
std::int64_t bytes_kept(const Program& p) {
  std::vector<bool> made(p.tensors.size(), false), kept(p.tensors.size(), false);
  for (const Instruction& i : p.instructions) {
    for (TensorId id : i.tag.phase == Phase::forward ? i.outputs : i.inputs) {
      if (id == no_tensor) continue;
      const auto storage = static_cast<std::size_t>(p[id].storage);
      if (i.tag.phase == Phase::forward)
        made[storage] = true;
      else
        kept[storage] = made[storage];
    }
  }
  std::int64_t bytes = 0;
  for (std::size_t t = 0; t < kept.size(); ++t) bytes += kept[t] ? p.bytes(static_cast<TensorId>(t)) : 0;
  return bytes;
}

TEST_F(TensorParallelProgram, GatheringAgainKeepsARanksPartOnly) {
  Configuration m{.shape = {.layers = 3, .heads = 4, .kv_heads = 4}};
  const std::int64_t whole = bytes_kept(step({.ranks = 1, .shape = m.shape})), ids = 2 * 8 * 4;
  for (const int ranks : {2, 4}) {
    m.ranks = ranks;
    m.options = {{"gather-again", "false"}};
    const Program once = step(m);
    m.options = {{"gather-again", "true"}};
    const Program again = step(m);
    // The head's input is gathered once: in a step, backward makes the logits.
    EXPECT_LE(bytes_kept(again), (whole + ids) / ranks + 2 * 8 * 16 * 4);
    EXPECT_GT(bytes_kept(once), (whole + ids) / ranks + 2 * 3 * 2 * 8 * 16 * 4 * (ranks - 1) / ranks);
    auto bytes_once = activation_bytes(once), bytes_again = activation_bytes(again);
    EXPECT_EQ(bytes_again["reduce_scatter"], bytes_once["reduce_scatter"]);
    EXPECT_DOUBLE_EQ(bytes_again["all_gather"], bytes_once["all_gather"] + 2.0 * 3 * 2 * 8 * 16 * 4 * (ranks - 1) / ranks);
  }
}

TEST_F(TensorParallelProgram, ChunksOfLogitsAreThoseOfOneRanksTokens) {
  const auto chunks = [&](int data, const char* strategy) {
    const Program p = step({.data = data, .data_strategy = strategy, .options = {{"logits-bytes", "600"}}, .micro_batch = 4});
    return std::count_if(p.instructions.begin(), p.instructions.end(),
                         [](const Instruction& i) { return i.op->name() == "vocabulary_logits"; });
  };
  EXPECT_EQ(chunks(1, "ddp"), 4);  // 4 x 8 tokens of 16 words in f32
  EXPECT_EQ(chunks(4, "ddp"), 4);
  EXPECT_EQ(chunks(4, "zero2"), 4);
}

TEST_F(TensorParallelProgram, MemoryFallsByTheNumberOfRanks) {
  const test::TinyShape shape{.heads = 4, .kv_heads = 4};
  const Program one = step({.ranks = 1, .shape = shape});
  for (const int ranks : {2, 4}) {
    const Program sequence = step({.ranks = ranks, .shape = shape});
    const Program plain = step({.ranks = ranks, .options = {{"sequence-parallel", "false"}}, .shape = shape});
    EXPECT_EQ(bytes_of_norms(sequence) * ranks, bytes_of_norms(one));
    EXPECT_EQ(bytes_of_norms(plain), bytes_of_norms(one));
    for (const Program* p : {&sequence, &plain}) {
      EXPECT_EQ(bytes_of_role(*p, Role::parameter, 2) * ranks, bytes_of_role(one, Role::parameter, 2)) << "matrices";
      EXPECT_EQ(bytes_of_role(*p, Role::optimizer_state, 2) * ranks, bytes_of_role(one, Role::optimizer_state, 2));
    }
  }
}

/// Counts the collectives of `phase` that move activations. First: those with an instruction `product` between them and the
/// first instruction that reads what they make. Second: all.
std::pair<int, int> hidden_collectives(const Program& p, Phase phase, std::string_view product) {
  int hidden = 0, all = 0;
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    const Instruction& c = p.instructions[i];
    if (!c.op->is_collective() || c.tag.phase != phase || p[c.inputs[0]].role != Role::activation) continue;
    if (p[c.inputs[0]].shape.rank() != 3 || p[c.inputs[0]].shape[2] != 16) continue;
    ++all;
    for (std::size_t j = i + 1; j < p.instructions.size(); ++j) {
      const auto& inputs = p.instructions[j].inputs;
      if (std::find(inputs.begin(), inputs.end(), c.outputs[0]) != inputs.end()) break;
      if (p.instructions[j].op->name() != product) continue;
      ++hidden;
      break;
    }
  }
  return {hidden, all};
}

TEST_F(TensorParallelProgram, BackwardComputesGradientsOfWeightsBesideCollectives) {
  Configuration m{.accumulation = 2, .shape = {.layers = 4}};
  const auto [hidden, all] = hidden_collectives(step(m), Phase::backward, "linear_weight_grad");
  // In each micro-batch all are hidden but the head's and the last layer's first: nothing is pending before the first linear.
  EXPECT_EQ(all, 2 * (4 * 4 + 2));
  EXPECT_EQ(hidden, all - 2 * 2);
  m.options["delay-weight-gradients"] = "false";
  EXPECT_LT(hidden_collectives(step(m), Phase::backward, "linear_weight_grad").first, hidden / 2);
}

// Gradients must not be planned where a collective still reads.
TEST_F(TensorParallelProgram, GradientsOfWeightsDoNotWaitForCollectivesBesideThem) {
  for (const char* parts : {"1", "2"}) {
    Program p = step({.options = {{"overlap-parts", parts}}, .shape = {.layers = 6, .heads = 4, .kv_heads = 2, .ffn = 64}});
    insert_waits(p, plan_memory(p, {}), {});
    int products = 0;
    for (std::size_t i = 0; i < p.instructions.size(); ++i) {
      const Instruction& product = p.instructions[i];
      if (!product.op->makes_weight_gradients()) continue;
      ++products;
      for (InstructionId wait : product.waits) {
        const std::vector<TensorId>& made = p.instructions[static_cast<std::size_t>(wait)].outputs;
        const bool reads = std::any_of(product.inputs.begin(), product.inputs.end(), [&](TensorId id) {
          return id != no_tensor &&
                 std::any_of(made.begin(), made.end(), [&](TensorId m) { return p[m].storage == p[id].storage; });
        });
        EXPECT_TRUE(reads) << "instruction " << i << " waits for " << wait << " with " << parts << " parts";
      }
    }
    EXPECT_EQ(products, 6 * 7);
  }
}

// Attention's own weights would hide its collectives for a fifth of the time that the other half's hide theirs.
TEST_F(TensorParallelProgram, CollectivesOfBackwardShareTheGradientsOfWeightsEvenly) {
  const Program p = step({.shape = {.layers = 6, .heads = 4, .kv_heads = 2, .ffn = 64}});
  std::vector<double> beside;  // FLOPs of weights' gradients in front of what waits for each collective
  double flops = 0, all = 0;
  bool travelling = false;
  for (const Instruction& i : p.instructions) {
    if (i.tag.phase != Phase::backward || i.tag.layer < 1 || i.tag.layer > 4) continue;
    if (i.op->is_collective()) {
      travelling = true;
    } else if (i.op->name() == "linear_weight_grad") {
      flops += i.op->cost(p, i).flops;
    } else if (std::exchange(travelling, false)) {
      beside.push_back(flops);
      all += std::exchange(flops, 0);
    }
  }
  ASSERT_EQ(beside.size(), 4 * 4 - 1);  // what layer 1 sends on is awaited in layer 0
  for (double one : beside) EXPECT_GT(one, 0.6 * all / 15);
}

TEST_F(TensorParallelProgram, ForwardComputesPartsBesideCollectivesOfOthers) {
  for (const std::int64_t micro_batch : {2, 1}) {  // parts are sequences, or stretches of the only one
    Configuration m{.shape = {.layers = 3, .heads = 4, .kv_heads = 2}, .micro_batch = micro_batch};
    EXPECT_EQ(hidden_collectives(step(m), Phase::forward, "linear"), std::pair(0, 2 * (2 * 3 + 1)));
    const auto whole = activation_bytes(step(m));
    m.options["overlap-parts"] = "2";
    const Program cut = step(m);
    // Sequences take turns from the first norm to the last: only the embedding's sums, the first half's first gather, and the
    // second half's last sums and gather have nothing beside them. Stretches are cut around each of six norms: the first part's
    // sums are beside the second part's product, the second part's gather beside the first part's products.
    const auto [hidden, all] = hidden_collectives(cut, Phase::forward, "linear");
    EXPECT_EQ(hidden, micro_batch == 2 ? all - 4 : 4 * 3);
    if (micro_batch == 2) EXPECT_EQ(all, 1 + 2 * (2 * 6 + 1));
    std::map<std::string, double> bytes;
    for (const Instruction& i : cut.instructions) {
      if (!i.op->is_collective() || cut[i.inputs[0]].shape.rank() != 3 || cut[i.inputs[0]].shape[2] != 16) continue;
      for (TensorId id : i.inputs) bytes[std::string(i.op->name())] += static_cast<double>(cut.bytes(id));
    }
    EXPECT_EQ(bytes["all_gather"], whole.at("all_gather"));
    EXPECT_EQ(bytes["reduce_scatter"], 2 * whole.at("reduce_scatter"));  // of two ranks' sums, a rank sends half
  }
}

// Rotated queries and keys of halves lie where those of the whole batch would: in place of what the packed product makes.
TEST_F(TensorParallelProgram, HalvesKeepNoMoreThanTheWhole) {
  for (const bool pack : {false, true}) {
    Configuration m{.shape = {.layers = 3, .heads = 4, .kv_heads = 2}, .pack_linears = pack};
    const std::int64_t whole = bytes_kept(step(m));
    m.options["overlap-parts"] = "2";
    EXPECT_EQ(bytes_kept(step(m)), whole) << (pack ? "packed" : "not packed");
  }
}

TEST_F(TensorParallelProgram, HalvesTakeTurnsByThemselvesWhereProductsStayLarge) {
  const auto parts_of = [&](std::int64_t micro_batch, std::int64_t sequence, const char* precision = "bf16") {
    const Program p = step({.precision = precision, .micro_batch = micro_batch, .sequence = sequence});
    return std::count_if(p.instructions.begin(), p.instructions.end(),
                         [](const Instruction& i) { return i.op->name() == "attention"; }) /
           2;  // layers
  };
  EXPECT_EQ(parts_of(2, 4096), 2);
  EXPECT_EQ(parts_of(2, 2048), 1) << "half of it is less than 4,096 tokens";
  EXPECT_EQ(parts_of(3, 4096), 1);
  EXPECT_EQ(parts_of(1, 8192), 1) << "attention needs a sequence whole";
  EXPECT_EQ(parts_of(2, 4096, "fp8"), 1) << "both sequences have one scale";
}

TEST_F(TensorParallelProgram, CutsOnlyWhatDivides) {
  EXPECT_THROW(step({.options = {{"overlap-parts", "2"}}, .micro_batch = 3}), UsageError);
  EXPECT_THROW(step({.options = {{"overlap-parts", "3"}}, .micro_batch = 1}), UsageError);
  EXPECT_THROW(step({.options = {{"overlap-parts", "2"}}, .shape = {.vocabulary = 33}, .micro_batch = 1}), UsageError);
  EXPECT_THROW(step({.options = {{"overlap-parts", "2"}, {"sequence-parallel", "false"}}}), UsageError);
  EXPECT_THROW(step({.precision = "fp8", .options = {{"overlap-parts", "2"}}}), UsageError);
}

TEST_F(TensorParallelProgram, RanksDoNotBlockEachOther) {
  for (const StrategyOptions& options :
       {StrategyOptions{}, {{"sequence-parallel", "false"}}, {{"overlap-parts", "2"}, {"gather-again", "true"}}}) {
    const Configuration m{.ranks = 2, .data = 2, .accumulation = 2, .options = options};
    Program p = step(m);
    insert_waits(p, plan_memory(p, {}), {});
    const std::vector<const Program*> ranks(4, &p);
    EXPECT_NO_THROW(verify_collectives(ranks));
    EXPECT_EQ(p.mesh.axis(1).name, "tensor") << "neighbours share layers";
  }
}

}  // namespace
}  // namespace consist
