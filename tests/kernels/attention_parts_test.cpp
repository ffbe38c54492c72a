// Attention of ranks that hold a part of the queries, with the sequence in order of position or in zigzag order: each rank's
// results against fp64.
#include <gmock/gmock.h>

#include "consist/error.h"
#include "consist/token_order.h"
#include "core/reference/gradients.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/run_kernel.h"

namespace consist {
namespace {

using reference::random_value;
using reference::Visibility;
using reference::zeros;
using test::DeviceAndDtype;
using test::expect_close;
using test::LocalParts;
using test::Repeated;
using test::Value;
using test::Values;

struct PartsCase {
  std::int64_t batch, sequence, heads, kv_heads, dim, ranks;
  bool zigzag;
  std::int64_t window = 0;
  std::int64_t documents = 0;  ///< tokens of each in the first sequence, one more in the next, and so on; 0: there are none
  AttentionScores scores = {};
  std::int64_t value_dim = 0;  ///< 0: dim

  std::int64_t of_values() const { return value_dim > 0 ? value_dim : dim; }
  friend void PrintTo(const PartsCase& c, std::ostream* out) {
    *out << c.sequence << " tokens over " << c.ranks << (c.zigzag ? " in zigzag order" : " in order of position") << ", window "
         << c.window << ", documents of " << c.documents << ", scale " << c.scores.scale << ", cap " << c.scores.cap;
  }
};

/// Indices [first, first + count) of dimension `dim`.
Value cut(const Value& whole, int dim, std::int64_t first, std::int64_t count) {
  Value part = whole;
  part.shape[dim] = count;
  part.data.clear();
  std::int64_t inner = 1;
  for (int d = dim + 1; d < whole.shape.rank(); ++d) inner *= whole.shape[d];
  for (std::int64_t i = 0; i < whole.shape.elements(); ++i) {
    const std::int64_t at = i / inner % whole.shape[dim];
    if (at >= first && at < first + count) part.data.push_back(whole.at(i));
  }
  return part;
}

/// Starts of the documents [batch, sequence], of tokens at these positions.
void set_starts(const PartsCase& c, const std::vector<std::int64_t>& positions, Value& starts) {
  for (std::int64_t i = 0; i < c.batch * c.sequence; ++i) {
    const std::int64_t position = positions[static_cast<std::size_t>(i % c.sequence)];
    if (c.documents > 0) starts.at(i) = static_cast<double>(position - position % (c.documents + i / c.sequence));
  }
}

class AttentionPart : public test::DeviceTest<DeviceAndDtype> {
 protected:
  void SetUp() override { open_or_skip(GetParam().device, test::options_of(GetParam().device)); }
  bool narrow() const { return GetParam().dtype == DType::bf16; }
  bool on_cuda() const { return GetParam().device == "cuda"; }
  double tolerance() const { return narrow() ? 6e-3 : 4e-6; }
  Value random(const Shape& shape, double scale = 1) { return random_value(engine_, GetParam().dtype, shape, scale); }

  void expect_parts(const PartsCase& c) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const std::int64_t zigzag = c.zigzag ? c.ranks : 0, held = c.sequence / c.ranks;
    Attributes attributes{{"head_dim", c.dim}};
    if (c.window > 0) attributes.set("window", c.window);
    if (zigzag > 0) attributes.set("zigzag", zigzag);
    if (c.value_dim > 0) attributes.set("value_dim", c.value_dim);
    test::set_scores(attributes, c.scores);
    const Value q = random({c.batch, c.sequence, c.heads * c.dim}, 2), k = random({c.batch, c.sequence, c.kv_heads * c.dim}),
                v = random({c.batch, c.sequence, c.kv_heads * c.of_values()}),
                dy = random({c.batch, c.sequence, c.heads * c.of_values()});
    Value starts = zeros(DType::i32, {c.batch, c.sequence});
    Visibility whole{.window = c.window, .starts = c.documents > 0 ? &starts : nullptr};
    for (std::int64_t i = 0; i < c.sequence; ++i) whole.keys.push_back(position_of(i, c.sequence, zigzag));
    whole.queries = whole.keys;
    set_starts(c, whole.keys, starts);
    const Values made = reference::attention({q, k, v}, c.dim, whole, c.scores);

    for (std::int64_t rank = 0; rank < c.ranks; ++rank) {
      const std::int64_t first = rank * held;
      const auto tokens_of = [&](const Value& of) { return cut(of, 1, first, held); };
      const Value own_q = tokens_of(q), own_dy = tokens_of(dy);
      const auto own_starts = c.documents > 0 ? std::optional(tokens_of(starts)) : std::nullopt;
      Value o = tokens_of(*made[0]), lse = cut(*made[1], 2, first, held);
      const Origin origin{0, first, 0};
      const LocalParts forward{.inputs = {origin, {}, {}, {0, first}},
                               .outputs = {origin, {0, 0, first}},
                               .output_types = {TensorType{o.dtype, o.shape}, TensorType{DType::f32, lse.shape}}};
      const Values found =
          test::run_kernel(*device_, "attention", {own_q, k, v, own_starts}, attributes, Repeated::same_bits, forward);
      // A GPU rounds what each block of the keys gives, and then what they give together.
      const bool in_blocks = on_cuda() && narrow() && c.zigzag && c.ranks > 1 && c.window == 0 && c.documents == 0;
      expect_close(found[0], o, (in_blocks ? 2 : 1) * tolerance(), "o of rank " + std::to_string(rank));
      expect_close(found[1], lse, 2e-6, "lse of rank " + std::to_string(rank));

      for (double& x : o.data) x = reference::rounded(x, GetParam().dtype);
      for (double& x : lse.data) x = static_cast<float>(x);
      Visibility own{.window = c.window, .starts = own_starts ? &*own_starts : nullptr, .keys = whole.keys};
      own.queries.assign(whole.keys.begin() + first, whole.keys.begin() + first + held);
      const Values gradients = reference::attention_grad(own_dy, own_q, k, v, o, lse, c.dim, own, c.scores);
      const LocalParts backward{
          .inputs = {origin, origin, {}, {}, origin, {0, 0, first}, {0, first}},
          .outputs = {origin, {}, {}},
          .output_types = {TensorType{q.dtype, own_q.shape}, TensorType{k.dtype, k.shape}, TensorType{v.dtype, v.shape}}};
      const Values parts = test::run_kernel(*device_, "attention_grad", {own_dy, own_q, k, v, o, lse, own_starts}, attributes,
                                            on_cuda() && narrow() ? Repeated::within_rounding : Repeated::same_bits, backward);
      for (std::size_t i = 0; i < 3; ++i) {
        // Sums over hundreds of queries; a GPU rounds those of each of two stretches, and then their sum.
        expect_close(parts[i], *gradients[i], (narrow() ? 8 : 4) * tolerance(),
                     std::string("d") + "qkv"[i] + " of rank " + std::to_string(rank));
      }
    }
  }

  /// Attention of each rank to one part of the keys after the other, as they come round the ring, against that to all keys.
  void expect_ring(const PartsCase& c) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const std::int64_t held = c.sequence / c.ranks;
    const Value q = random({c.batch, c.sequence, c.heads * c.dim}, 2), k = random({c.batch, c.sequence, c.kv_heads * c.dim}),
                v = random({c.batch, c.sequence, c.kv_heads * c.of_values()}),
                dy = random({c.batch, c.sequence, c.heads * c.of_values()});
    Value starts = zeros(DType::i32, {c.batch, c.sequence});
    Visibility whole{.window = c.window, .starts = c.documents > 0 ? &starts : nullptr};
    for (std::int64_t i = 0; i < c.sequence; ++i) whole.keys.push_back(position_of(i, c.sequence, c.ranks));
    whole.queries = whole.keys;
    set_starts(c, whole.keys, starts);
    Value exact_q = q, exact_k = k, exact_v = v;  // references round to the dtype of what they read
    for (Value* value : {&exact_q, &exact_k, &exact_v}) value->dtype = DType::f32;
    const Values made = reference::attention({exact_q, exact_k, exact_v}, c.dim, whole, c.scores);
    Value o = *made[0], lse = *made[1];
    o.dtype = GetParam().dtype;
    for (double& x : o.data) x = reference::rounded(x, GetParam().dtype);
    for (double& x : lse.data) x = static_cast<float>(x);
    const Values gradients = reference::attention_grad(dy, exact_q, exact_k, exact_v, o, lse, c.dim, whole, c.scores);
    Value dk = zeros(DType::f32, k.shape), dv = zeros(DType::f32, v.shape);
    const double gradient_tolerance = on_cuda() && narrow() ? 8 * tolerance() : 2e-5;
    for (std::int64_t rank = 0; rank < c.ranks; ++rank) {
      const std::int64_t first = rank * held;
      const Origin origin{0, first, 0}, lse_origin{0, 0, first};
      const auto tokens_of = [&](const Value& of, std::int64_t part) { return cut(of, 1, part * held, held); };
      const auto own_starts = c.documents > 0 ? std::optional(tokens_of(starts, rank)) : std::nullopt;
      const Value own_q = tokens_of(q, rank), own_o = tokens_of(o, rank), own_lse = cut(lse, 2, first, held);
      const TensorType q_type{DType::f32, own_q.shape}, lse_type{DType::f32, own_lse.shape},
          k_type{DType::f32, {c.batch, held, c.kv_heads * c.dim}}, o_type{DType::f32, own_o.shape},
          v_type{DType::f32, {c.batch, held, c.kv_heads * c.of_values()}};
      std::optional<Value> sum_o, sum_lse, dq;
      for (std::int64_t shift = 0; shift < c.ranks; ++shift) {
        const std::int64_t part = (rank + c.ranks - shift) % c.ranks;
        Attributes attributes{{"head_dim", c.dim}, {"zigzag", c.ranks}, {"shift", shift}};
        if (c.window > 0) attributes.set("window", c.window);
        if (c.value_dim > 0) attributes.set("value_dim", c.value_dim);
        test::set_scores(attributes, c.scores);
        const LocalParts forward{.inputs = {origin, origin, origin, {0, first}, origin, lse_origin},
                                 .outputs = {origin, lse_origin},
                                 .output_types = {o_type, lse_type}};
        const Values found = test::run_kernel(*device_, "attention_part",
                                              {own_q, tokens_of(k, part), tokens_of(v, part), own_starts, sum_o, sum_lse},
                                              attributes, Repeated::same_bits, forward);
        sum_o = *found[0];
        sum_lse = *found[1];
        const LocalParts backward{.inputs = {origin, origin, origin, origin, origin, lse_origin, {0, first}, origin},
                                  .outputs = {origin, origin, origin},
                                  .output_types = {q_type, k_type, v_type}};
        const Values parts =
            test::run_kernel(*device_, "attention_part_grad",
                             {tokens_of(dy, rank), own_q, tokens_of(k, part), tokens_of(v, part), own_o, own_lse, own_starts, dq},
                             attributes, on_cuda() && narrow() ? Repeated::within_rounding : Repeated::same_bits, backward);
        dq = *parts[0];
        for (const auto& [sum, summand] : {std::pair{&dk, &*parts[1]}, std::pair{&dv, &*parts[2]}}) {
          const std::int64_t count = held * summand->shape[2];
          for (std::int64_t i = 0; i < c.batch * count; ++i)
            sum->at((i / count * c.ranks + part) * count + i % count) += summand->at(i);
        }
      }
      // A GPU rounds what it makes of each part to the dtype of the operands, the cpu device nothing: parts of o may be larger
      // than their sum.
      expect_close(*sum_o, tokens_of(*made[0], rank), on_cuda() && narrow() ? 4 * tolerance() : 1.5e-5,
                   "o of rank " + std::to_string(rank));
      expect_close(*sum_lse, own_lse, 2e-6, "lse of rank " + std::to_string(rank));
      expect_close(*dq, tokens_of(*gradients[0], rank), gradient_tolerance, "dq of rank " + std::to_string(rank));
    }
    expect_close(dk, *gradients[1], gradient_tolerance, "dk");
    expect_close(dv, *gradients[2], gradient_tolerance, "dv");
  }

  std::mt19937 engine_{29};
};

// Parts of which a rank's queries see all, a half and none; chunks smaller than a tile and across its borders; heads whose rows
// do not begin at 16 bytes; groups of 1, 2 and 3.
TEST_P(AttentionPart, AroundARing) {
  for (const PartsCase& c :
       {PartsCase{2, 8, 2, 1, 4, 2, true}, PartsCase{1, 24, 3, 1, 6, 3, true}, PartsCase{2, 16, 4, 2, 8, 4, true},
        PartsCase{1, 256, 2, 2, 16, 2, true}, PartsCase{1, 140, 2, 1, 8, 2, true}, PartsCase{1, 256, 2, 1, 64, 4, true},
        PartsCase{1, 192, 3, 1, 128, 3, true}})
    expect_ring(c);
}

// Windows that hide a whole part and all of a chunk; that end within a tile, and at its border.
TEST_P(AttentionPart, AroundARingWithinWindowsAndDocuments) {
  for (const PartsCase& c : {PartsCase{1, 144, 2, 1, 4, 2, true, 20}, PartsCase{2, 24, 2, 1, 4, 2, true, 0, 5},
                             PartsCase{2, 160, 2, 2, 4, 4, true, 7, 5}, PartsCase{1, 192, 2, 1, 64, 2, true, 64},
                             PartsCase{1, 192, 2, 1, 16, 3, true, 100}, PartsCase{1, 200, 3, 1, 72, 2, true, 130, 90}})
    expect_ring(c);
}

// In one call for each part, and in one for each pair of chunks; heads for cuDNN and for Consist's own kernels.
TEST_P(AttentionPart, AroundARingWithAScaleAndASoftCap) {
  for (const PartsCase& c : {PartsCase{1, 24, 3, 1, 6, 3, true, 0, 0, {.scale = 0.3, .cap = 2}},
                             PartsCase{1, 140, 2, 1, 8, 2, true, 0, 0, {.scale = 0.5}},
                             PartsCase{1, 144, 2, 1, 16, 2, true, 20, 0, {.scale = 0.4, .cap = 3}}})
    expect_ring(c);
}

// The keys of the last part, with nothing before: of the first rank only the later half of the queries sees them.
TEST_P(AttentionPart, QueriesThatSeeNoKeysHaveNothing) {
  const std::int64_t held = 8, dim = 8;
  const Value q = random({1, held, dim}), k = random(q.shape), v = random(q.shape);
  const test::HostTensors found =
      test::run_kernel_at({}, *device_, "attention_part", {test::to_host(q), test::to_host(k), test::to_host(v)},
                          {{"head_dim", dim}, {"zigzag", std::int64_t{2}}, {"shift", std::int64_t{1}}}, Repeated::same_bits, {});
  for (std::int64_t row = 0; row < held; ++row) {
    const bool sees = row >= held / 2;
    EXPECT_EQ(std::isfinite((*found[1])[row]), sees) << "row " << row;
    for (std::int64_t i = 0; i < dim; ++i) EXPECT_EQ((*found[0])[row * dim + i] != 0, sees) << "row " << row;
  }
}

// Chunks smaller than a tile, of whole tiles, and across their borders; groups of 1, 2 and 3.
TEST_P(AttentionPart, OfEachRank) {
  for (const PartsCase& c :
       {PartsCase{2, 8, 2, 1, 4, 2, true}, PartsCase{1, 24, 3, 1, 6, 3, true}, PartsCase{2, 16, 4, 2, 8, 4, true},
        PartsCase{1, 256, 2, 2, 16, 2, true}, PartsCase{1, 512, 2, 1, 64, 4, true}, PartsCase{1, 140, 2, 1, 8, 2, true},
        PartsCase{1, 10, 1, 1, 4, 2, false}, PartsCase{2, 192, 2, 1, 16, 3, false}})
    expect_parts(c);
}

TEST_P(AttentionPart, OfEachRankWithAScaleAndASoftCap) {
  for (const PartsCase& c : {PartsCase{1, 24, 3, 1, 6, 3, true, 0, 0, {.scale = 0.3, .cap = 2}},
                             PartsCase{1, 140, 2, 1, 8, 2, true, 0, 0, {.scale = 0.5}},
                             PartsCase{2, 160, 2, 2, 4, 4, true, 7, 5, {.scale = 0.4, .cap = 3}}})
    expect_parts(c);
}

// The cuda device says that it has none.
TEST_P(AttentionPart, WithValuesOfASizeOfTheirOwn) {
  const PartsCase c{2, 24, 4, 2, 6, 2, true, 0, 0, {}, 10};
  if (!on_cuda()) {
    expect_parts(c);
    expect_ring(c);
    return;
  }
  try {
    expect_parts(c);
    FAIL() << "it ran";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("values of 10"));
  }
}

TEST_P(AttentionPart, OneRankWithAWholeSequenceInZigzagOrder) {
  const std::int64_t sequence = 12, dim = 4;
  const Value q = random({1, sequence, dim}), k = random(q.shape), v = random(q.shape);
  Visibility order;
  for (std::int64_t i = 0; i < sequence; ++i) order.keys.push_back(position_of(i, sequence, 1));
  order.queries = order.keys;
  const Values found = test::run_kernel(*device_, "attention", {q, k, v}, {{"head_dim", dim}, {"zigzag", std::int64_t{1}}});
  expect_close(found[0], *reference::attention({q, k, v}, dim, order)[0], tolerance(), "o");
}

// Whole sequences and parts; documents and windows shorter and longer than a tile.
TEST_P(AttentionPart, WithinWindowsAndDocuments) {
  for (const PartsCase& c : {PartsCase{1, 144, 2, 1, 4, 2, true, 20}, PartsCase{2, 24, 2, 1, 4, 2, true, 0, 5},
                             PartsCase{2, 160, 2, 2, 4, 4, true, 7, 5}, PartsCase{2, 160, 4, 2, 64, 1, false, 100},
                             PartsCase{1, 256, 2, 1, 64, 2, true, 64}, PartsCase{1, 130, 2, 1, 16, 1, false, 33},
                             PartsCase{2, 96, 2, 1, 128, 1, false, 0, 7}, PartsCase{2, 200, 3, 1, 72, 1, false, 150, 90},
                             PartsCase{1, 240, 2, 2, 8, 3, false, 0, 120}})
    expect_parts(c);
}

// Ulysses: parts of the channels in one piece each, of a whole tensor and of a rank that holds one of two parts.
TEST_P(AttentionPart, ChannelsInParts) {
  for (const std::int64_t parts : {1, 2, 3}) {
    const Value wide = random({2, 5, 3 * 4});
    Value split = zeros(GetParam().dtype, {parts, 2, 5, 12 / parts});
    for (std::int64_t i = 0; i < split.shape.elements(); ++i) {
      const std::int64_t width = 12 / parts;
      split.at(i) = wide.at(i / width % 10 * 12 + i / width / 10 * width + i % width);
    }
    expect_close(test::run_kernel(*device_, "split_channels", {wide}, {{"parts", parts}})[0], split, 0, "parts");
    expect_close(test::run_kernel(*device_, "merge_channels", {split}, {})[0], wide, 0, "whole");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionPart, ::testing::ValuesIn(test::devices_and_dtypes()),
                         [](const ::testing::TestParamInfo<DeviceAndDtype>& info) {
                           return ::testing::PrintToString(info.param);
                         });

}  // namespace
}  // namespace consist
