// Kernels of ranks that hold parts of a vocabulary, of heads or of a tensor: run for every rank in turn, their results must make
// up what fp64 gives for the whole.
#include <gmock/gmock.h>

#include "consist/error.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/run_kernel.h"

namespace consist {
namespace {

using reference::random_ids;
using reference::random_value;
using reference::zeros;
using test::expect_close;
using test::LocalParts;
using test::Repeated;
using test::Value;
using test::Values;

struct PartSetup {
  std::string device;
  DType dtype, gradient;
};

void PrintTo(const PartSetup& setup, std::ostream* out) {
  *out << setup.device << "_" << name_of(setup.dtype) << "_gradients_" << name_of(setup.gradient);
}

/// Rows [first, first + count) of a tensor whose dimension 0 is cut.
Value rows_of(const Value& whole, std::int64_t first, std::int64_t count) {
  Value part = whole;
  part.shape[0] = count;
  const auto width = static_cast<std::ptrdiff_t>(whole.shape.elements() / whole.shape[0]);
  part.data.assign(whole.data.begin() + first * width, whole.data.begin() + (first + count) * width);
  return part;
}

Origin at_row(std::int64_t row) {
  return {row};
}
Types type_of(const Value& value) {
  return {TensorType{value.dtype, value.shape}};
}

class PartKernel : public test::DeviceTest<PartSetup> {
 protected:
  void SetUp() override { open_or_skip(GetParam().device, test::options_of(GetParam().device)); }
  bool narrow() const { return GetParam().dtype == DType::bf16; }
  double tolerance() const { return narrow() ? 1.5e-2 : 4e-6; }  // in bf16 logits are rounded, and gradients of them
  Value random(const Shape& shape, double scale = 1) { return random_value(engine_, GetParam().dtype, shape, scale); }
  Values run(const std::string& op, const Values& in, const Attributes& attributes, const LocalParts& parts = {}) {
    return test::run_kernel(*device_, op, in, attributes, Repeated::same_bits, parts);
  }
  std::string gradient_name() const { return std::string(name_of(GetParam().gradient)); }

  std::mt19937 engine_{23};
};

TEST_P(PartKernel, EmbeddingOfATableInParts) {
  constexpr std::int64_t vocabulary = 36, parts = 3, c = 24, held = vocabulary / parts;
  const Value ids = random_ids(engine_, {2, 11}, 0, vocabulary), table = random({vocabulary, c}), dy = random({2, 11, c});
  Value dtable = reference::gradient("embedding", {ids, table}, {}, 1, dy);
  // An id of the last part, counted over the whole table: its row gets nothing, and no row of another part is taken for it.
  const auto padding = static_cast<std::int64_t>(*std::max_element(ids.data.begin(), ids.data.end()));
  ASSERT_GE(padding, vocabulary - held);
  std::fill_n(dtable.data.begin() + padding * c, c, 0.0);
  const Attributes forward{{"vocabulary", vocabulary}, {"padding_id", padding}},
      backward{{"dtype", gradient_name()}, {"vocabulary", held}, {"padding_id", padding}};
  Value sum = zeros(DType::f32, dy.shape);
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t first = part * held;
    const Value y = *run("embedding", {ids, rows_of(table, first, held)}, forward, {.inputs = {{}, at_row(first)}})[0];
    for (std::size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += y.data[i];
    for (const bool add : {false, true}) {
      Value expected = rows_of(dtable, first, held);
      std::optional<Value> acc;
      if (add) {
        acc = random_value(engine_, GetParam().gradient, expected.shape);
        for (std::size_t i = 0; i < expected.data.size(); ++i) expected.data[i] += acc->data[i];
      }
      expect_close(run("embedding_grad", {ids, dy, acc}, backward, {.outputs = {at_row(first)}})[0], expected, tolerance(),
                   "dtable");
    }
  }
  expect_close(sum, *reference::embedding({ids, table})[0], 0, "sum of all parts");
  Value wrong = ids;
  for (const double bad : {-1.0, static_cast<double>(vocabulary)}) {
    wrong.data[5] = bad;
    EXPECT_THROW(run("embedding", {wrong, rows_of(table, held, held)}, forward, {.inputs = {{}, at_row(held)}}), DataError);
  }
}

/// Results of all ranks of a split vocabulary together, from x, w and targets, in chunks of tokens.
struct SplitLoss {
  double forward = 0, loss = 0;
  Value dx, dw;
};

class VocabularyKernel : public PartKernel {
 protected:
  SplitLoss run_split(const Value& x, const Value& w, const Value& targets, std::int64_t parts, std::int64_t chunks, double scale,
                      const std::optional<Value>& acc) {
    const std::int64_t tokens = x.shape.rows(), vocabulary = w.shape[0], held = vocabulary / parts, rows = tokens / chunks;
    const auto attributes = [&](std::int64_t chunk) {
      return Attributes{{"chunk", chunk},           {"chunks", chunks}, {"parts", std::int64_t{1}},
                        {"vocabulary", vocabulary}, {"scale", scale},   {"dtype", gradient_name()}};
    };
    const auto local = [&](std::size_t w_at, std::int64_t part) {
      LocalParts local;
      local.inputs.resize(w_at + 2);
      local.inputs[w_at] = at_row(part * held);
      return local;
    };
    std::vector<std::vector<Value>> logits(static_cast<std::size_t>(chunks));
    std::vector<Value> gathered;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      Value stats = zeros(DType::f32, {parts, rows, 3});
      for (std::int64_t part = 0; part < parts; ++part) {
        const Values made =
            run("vocabulary_logits", {x, rows_of(w, part * held, held), targets}, attributes(chunk), local(1, part));
        logits[static_cast<std::size_t>(chunk)].push_back(*made[0]);
        std::copy(made[1]->data.begin(), made[1]->data.end(), stats.data.begin() + part * rows * 3);
      }
      gathered.push_back(stats);
    }
    SplitLoss result{.dx = zeros(DType::f32, x.shape), .dw = zeros(GetParam().gradient, w.shape)};
    Values all{x, w, targets};
    for (const Value& stats : gathered) all.push_back(stats);
    Attributes whole = attributes(0);
    whole.set("parts", parts);
    result.forward = run("vocabulary_loss", all, whole)[0]->data[0];

    for (std::int64_t part = 0; part < parts; ++part) {
      std::optional<Value> loss, dx, dw;
      if (acc) dw = rows_of(*acc, part * held, held);
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const auto index = static_cast<std::size_t>(chunk);
        Attributes of_chunk = attributes(chunk);
        of_chunk.set("parts", parts);
        const Values made = run("vocabulary_loss_grad",
                                {logits[index][static_cast<std::size_t>(part)], gathered[index], x, rows_of(w, part * held, held),
                                 targets, loss, dx, dw},
                                of_chunk, local(3, part));
        loss = made[0];
        dx = made[1];
        dw = made[2];
      }
      result.loss = loss->data[0];
      for (std::size_t i = 0; i < dx->data.size(); ++i) result.dx.data[i] += dx->data[i];
      std::copy(dw->data.begin(), dw->data.end(), result.dw.data.begin() + part * held * w.shape[1]);
    }
    return result;
  }
};

TEST_P(VocabularyKernel, LossAndGradientsAreThoseOfTheWholeVocabulary) {
  const double scale = 0.25;
  const Attributes attributes{{"scale", scale}};
  for (const auto& [parts, chunks, vocabulary] : {std::array<std::int64_t, 3>{1, 1, 37}, {2, 3, 48}, {3, 2, 33}, {4, 1, 64}}) {
    SCOPED_TRACE(std::to_string(parts) + " parts, " + std::to_string(chunks) + " chunks");
    const Value x = random({2, 9 * chunks, 10}), w = random({vocabulary, 10}, 0.5);
    Value targets = random_ids(engine_, {2, 9 * chunks}, 0, static_cast<int>(vocabulary));
    targets.data[3] = targets.data.back() = -1;
    const Value one{DType::f32, {}, {1}};
    const double expected = reference::lm_head_loss({x, w, targets}, scale)[0]->data[0];
    const Value dx = reference::gradient("lm_head_loss", {x, w, targets}, attributes, 0, one);
    Value dw = reference::gradient("lm_head_loss", {x, w, targets}, attributes, 1, one);
    for (const bool add : {false, true}) {
      std::optional<Value> acc;
      if (add) {
        acc = random_value(engine_, GetParam().gradient, dw.shape);
        for (std::size_t i = 0; i < dw.data.size(); ++i) dw.data[i] += acc->data[i];
      }
      const SplitLoss found = run_split(x, w, targets, parts, chunks, scale, acc);
      const double loss_tolerance = narrow() ? 3e-3 : 2e-6;  // in bf16 the logits are rounded
      EXPECT_NEAR(found.forward / expected, 1, loss_tolerance);
      EXPECT_NEAR(found.loss / expected, 1, loss_tolerance);
      expect_close(found.dx, dx, tolerance(), "dx");
      // Every chunk's sum is rounded where gradients are bf16.
      expect_close(found.dw, dw, tolerance() * static_cast<double>(GetParam().gradient == DType::bf16 ? chunks : 1), "dw");
    }
  }
}

TEST_P(VocabularyKernel, LogitsFarApartOverflowNowhere) {
  Value x = random({1, 4, 8}, 30), w = random({32, 8}, 3);
  const Value targets = random_ids(engine_, {1, 4}, 0, 32);
  const double expected = reference::lm_head_loss({x, w, targets}, 1)[0]->data[0];
  const SplitLoss found = run_split(x, w, targets, 4, 1, 1, std::nullopt);
  EXPECT_NEAR(found.forward / expected, 1, narrow() ? 1e-2 : 1e-5);
  EXPECT_NEAR(found.loss, found.forward, 1e-5 * std::abs(found.forward));
}

TEST_P(VocabularyKernel, TargetsOutsideOfTheVocabularyAreRefused) {
  const Value x = random({1, 4, 8}), w = random({16, 8});
  Value targets = random_ids(engine_, {1, 4}, 0, 32);
  const Attributes attributes{
      {"chunk", std::int64_t{0}}, {"chunks", std::int64_t{1}}, {"parts", std::int64_t{1}}, {"vocabulary", std::int64_t{32}}};
  EXPECT_NO_THROW(run("vocabulary_logits", {x, w, targets}, attributes, {.inputs = {{}, at_row(16), {}}}));
  targets.data[2] = 32;
  EXPECT_THROW(run("vocabulary_logits", {x, w, targets}, attributes, {.inputs = {{}, at_row(16), {}}}), DataError);
}

TEST_P(PartKernel, RepeatHeads) {
  constexpr std::int64_t head_dim = 6, kv_heads = 2, ranks = 4;
  for (const Shape& shape : {Shape{kv_heads * head_dim, 5}, Shape{kv_heads * head_dim}}) {
    const Value w = random(shape);
    const Attributes attributes{{"axis", AxisSet(0)}, {"heads", ranks}, {"head_dim", head_dim}, {"rows", shape[0]}};
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t source = rank / (ranks / kv_heads) * head_dim;
      const Value head = rows_of(w, source, head_dim);
      const LocalParts forward{.outputs = {at_row(rank * head_dim)}, .output_types = type_of(head)};
      expect_close(run("repeat_heads", {w}, attributes, forward)[0], head, 0, "the rank's head");
      const Value dy = random_value(engine_, GetParam().gradient, head.shape);
      for (const bool add : {false, true}) {
        Value expected = zeros(GetParam().gradient, shape);
        std::optional<Value> acc;
        if (add) acc = expected = random_value(engine_, GetParam().gradient, shape);
        const auto first = expected.data.begin() + source * (shape.elements() / shape[0]);
        std::transform(dy.data.begin(), dy.data.end(), first, first, std::plus<>());
        const LocalParts backward{.inputs = {at_row(rank * head_dim), {}}, .output_types = type_of(expected)};
        expect_close(run("repeat_heads_grad", {dy, acc}, attributes, backward)[0], expected,
                     GetParam().gradient == DType::bf16 ? 4e-3 : 1e-7, "the rank's summand");
      }
    }
  }
}

TEST_P(PartKernel, Slice) {
  const Value whole = random({3, 8, 5});
  for (const int dim : {0, 1, 2, -1}) {
    Value part = whole;
    Origin origin{};
    if (dim < 0) {
      part.shape = Shape{40};
      part.data.assign(whole.data.begin() + 80, whole.data.begin() + 120);
      origin[0] = 80;
    } else {
      const std::int64_t first = dim == 1 ? 4 : 1, count = dim == 1 ? 4 : 1;
      part.shape[dim] = count;
      part.data.clear();
      origin[static_cast<std::size_t>(dim)] = first;
      for (std::int64_t i = 0; i < whole.shape.elements(); ++i) {
        const std::int64_t at = dim == 0 ? i / 40 : dim == 1 ? i / 5 % 8 : i % 5;
        if (at >= first && at < first + count) part.data.push_back(whole.at(i));
      }
    }
    const Attributes attributes{{"axis", AxisSet(0)}, {"dim", std::int64_t{dim}}};
    const LocalParts local{.inputs = {{}}, .outputs = {origin}, .output_types = type_of(part)};
    expect_close(run("slice", {whole}, attributes, local)[0], part, 0, "part along " + std::to_string(dim));
  }
}

std::vector<PartSetup> setups() {
  std::vector<PartSetup> all;
  for (const std::string& device : test::device_kinds()) {
    all.insert(all.end(),
               {{device, DType::f32, DType::f32}, {device, DType::bf16, DType::f32}, {device, DType::bf16, DType::bf16}});
  }
  return all;
}
const auto name_of_setup = [](const ::testing::TestParamInfo<PartSetup>& info) { return ::testing::PrintToString(info.param); };
INSTANTIATE_TEST_SUITE_P(Devices, PartKernel, ::testing::ValuesIn(setups()), name_of_setup);
INSTANTIATE_TEST_SUITE_P(Devices, VocabularyKernel, ::testing::ValuesIn(setups()), name_of_setup);

}  // namespace
}  // namespace consist
