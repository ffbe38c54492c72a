// Kernels of mixtures of experts against fp64: routing, rows of experts, grouped products.
#include "core/reference/moe.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "core/reference/moe_sends.h"
#include "tests/kernels/device_kernel.h"

namespace consist {
namespace {

using reference::random_value;
using test::DeviceKernel;
using test::expect_close;
using test::kWithAndWithout;
using test::LocalParts;
using test::Repeated;
using test::Value;
using test::Values;

Attributes routing(std::int64_t choices, bool normalize) {
  return {{"choices", choices}, {"normalize", std::int64_t{normalize ? 1 : 0}}};
}
Attributes of_choices(std::int64_t choices) {
  return {{"choices", choices}};
}
Attributes rows_of(std::int64_t rows, std::int64_t experts) {
  return {{"rows", rows}, {"experts", experts}, {"axis", AxisSet(0)}};
}

Value f32(DeviceKernel& test, const Shape& shape) {
  return random_value(test.engine_, DType::f32, shape);
}
/// `choices` different experts for each token.
Value choose(DeviceKernel& test, const Shape& tokens, std::int64_t experts, std::int64_t choices) {
  return *reference::moe_route(f32(test, {tokens[0], tokens[1], experts}), choices, false)[1];
}

TEST_P(DeviceKernel, Routing) {
  struct Sizes {
    std::int64_t batch, sequence, experts, choices;
  };
  for (const Sizes& s : {Sizes{1, 1, 1, 1}, {2, 7, 5, 2}, {3, 33, 64, 8}, {1, 40, 130, 3}}) {
    Value logits = random({s.batch, s.sequence, s.experts}, 2);
    if (s.experts > 4) logits.data[1] = logits.data[3] = 9;  // equal: the smaller index comes first
    for (const bool normalize : kWithAndWithout) {
      const Attributes attributes = routing(s.choices, normalize);
      const Values made = run("moe_route", {logits}, attributes), expected = reference::moe_route(logits, s.choices, normalize);
      EXPECT_EQ(made[1]->data, expected[1]->data);
      expect_close(made[0], *expected[0], 4e-6, "weights");
      expect_close(made[2], *expected[2], 4e-6, "statistics");
      const Value dweights = f32(*this, {s.batch, s.sequence, s.choices}), dstatistics = f32(*this, {2 * s.experts + 1});
      const double within = narrow() ? 1e-2 : 2e-5;  // differences of probabilities
      expect_close(run("moe_route_grad", {logits, *expected[1], dweights, dstatistics}, attributes)[0],
                   reference::moe_route_grad(logits, *expected[1], &dweights, &dstatistics, normalize), within, "dlogits");
      expect_close(run("moe_route_grad", {logits, *expected[1], dweights}, attributes)[0],
                   reference::moe_route_grad(logits, *expected[1], &dweights, nullptr, normalize), within, "dlogits of weights");
      expect_close(run("moe_route_grad", {logits, *expected[1], std::nullopt, dstatistics}, attributes)[0],
                   reference::moe_route_grad(logits, *expected[1], nullptr, &dstatistics, normalize), within,
                   "dlogits of statistics");
    }
  }
}

// By sigmoids, with a bias that decides choices alone, of experts in groups.
TEST_P(DeviceKernel, RoutingBySigmoids) {
  struct Sizes {
    std::int64_t batch, sequence, experts, choices, groups, kept;
  };
  for (const Sizes& s :
       {Sizes{1, 1, 4, 2, 1, 1}, {2, 7, 6, 3, 3, 2}, {3, 33, 64, 8, 8, 4}, {1, 40, 130, 3, 5, 1}, {1, 9, 260, 4, 26, 25}}) {
    Value logits = random({s.batch, s.sequence, s.experts}, 2);
    const Value bias = random({s.experts}, 0.5);
    if (s.experts > 4) logits.data[1] = logits.data[3] = -40;  // whose sigmoids are nothing
    for (const bool normalize : kWithAndWithout) {
      for (const bool biased : kWithAndWithout) {
        Attributes attributes = routing(s.choices, normalize);
        attributes.set("sigmoid", std::int64_t{1});
        attributes.set("groups", s.groups);
        attributes.set("kept_groups", s.kept);
        const reference::SigmoidRouter sigmoid{biased ? &bias : nullptr, s.groups, s.kept};
        Values inputs{logits};
        if (biased) inputs = {logits, std::nullopt, std::nullopt, bias};
        const Values made = run("moe_route", inputs, attributes),
                     expected = reference::moe_route(logits, s.choices, normalize, nullptr, &sigmoid);
        EXPECT_EQ(made[1]->data, expected[1]->data);
        expect_close(made[0], *expected[0], 4e-6, "weights");
        expect_close(made[2], *expected[2], 4e-6, "statistics");
        const Value &chosen = *expected[1], dweights = f32(*this, {s.batch, s.sequence, s.choices}),
                    dstatistics = f32(*this, {2 * s.experts + 1});
        const double within = narrow() ? 1e-2 : 1e-4;  // of all logits, most of which get no gradient of weights
        expect_close(run("moe_route_grad", {logits, chosen, dweights, dstatistics}, attributes)[0],
                     reference::moe_route_grad(logits, chosen, &dweights, &dstatistics, normalize, true), within, "dlogits");
        expect_close(run("moe_route_grad", {logits, chosen, dweights}, attributes)[0],
                     reference::moe_route_grad(logits, chosen, &dweights, nullptr, normalize, true), within,
                     "dlogits of weights");
      }
    }
  }
}

/// [orders, 2, experts]: ends of intervals of random lengths, whose sum is `choices`, none longer than 1, and who has them.
Value random_intervals(std::mt19937& engine, std::int64_t orders, std::int64_t experts, std::int64_t choices) {
  Value intervals = reference::zeros(DType::f32, {orders, 2, experts});
  std::vector<double> lengths(static_cast<std::size_t>(experts), static_cast<double>(choices) / static_cast<double>(experts));
  for (std::size_t e = 1; e < lengths.size(); e += 2) {
    const double most = std::min(lengths[e], 1 - lengths[e - 1]);
    const double moved = e == 1 ? most : std::uniform_real_distribution<double>(0, most)(engine);  // one has none, or one has all
    lengths[e] -= moved;
    lengths[e - 1] += moved;
  }
  for (std::int64_t order = 0; order < orders; ++order) {
    std::vector<std::size_t> owners(lengths.size());
    std::iota(owners.begin(), owners.end(), std::size_t{0});
    std::shuffle(owners.begin(), owners.end(), engine);
    double end = 0;
    for (std::size_t k = 0; k < owners.size(); ++k) {
      const std::size_t at = static_cast<std::size_t>(order * 2 * experts) + k;
      intervals.data[at] = static_cast<float>(end += lengths[owners[k]]);
      intervals.data[at + owners.size()] = static_cast<double>(owners[k]);
    }
  }
  return intervals;
}

TEST_P(DeviceKernel, AStatedLoadChoosesByIds) {
  struct Sizes {
    std::int64_t batch, sequence, experts, choices;
  };
  for (const Sizes& s : {Sizes{1, 1, 1, 1}, {2, 300, 5, 2}, {1, 400, 64, 8}, {1, 100, 130, 3}, {1, 40, 6, 6}}) {
    const Value logits = random({s.batch, s.sequence, s.experts}, 2);
    Value ids = reference::zeros(DType::i32, {s.batch, s.sequence});
    for (double& id : ids.data) id = static_cast<double>(engine_() % 151936);
    const Value intervals = random_intervals(engine_, 3, s.experts, s.choices);
    for (const std::int64_t router : {0, 47}) {
      Attributes attributes = routing(s.choices, true);
      attributes.set("router", router);
      const reference::StatedLoad load{ids, intervals, router};
      const Values made = run("moe_route", {logits, ids, intervals}, attributes),
                   expected = reference::moe_route(logits, s.choices, true, &load);
      EXPECT_EQ(made[1]->data, expected[1]->data);
      expect_close(made[0], *expected[0], 4e-6, "weights");
      expect_close(made[2], *expected[2], 4e-6, "statistics");
    }
  }
}

TEST_P(DeviceKernel, CountedChoices) {
  for (const std::int64_t experts : {1, 5, 130}) {
    const Value statistics = random_value(engine_, DType::f32, {2 * experts + 1}, 1, 5);
    for (const std::int64_t more : {0, 300}) {
      for (const std::int64_t row : {0, 2}) {
        const Attributes attributes{{"row", row}, {"rows", std::int64_t{3}}, {"experts", experts + more}};
        for (const bool add : kWithAndWithout) {
          Value counts = reference::zeros(DType::f32, {3, experts + more});
          const auto acc = accumulator(add, DType::f32, counts);
          reference::count_choices(counts, statistics, row);
          expect_close(run("count_choices", {statistics, acc}, attributes)[0], counts, 1e-6, "counts");
        }
      }
    }
  }
}

TEST_P(DeviceKernel, BalanceLoss) {
  for (const std::int64_t experts : {1, 5, 130}) {
    const Value statistics = random_value(engine_, DType::f32, {2 * experts + 1}, 1, 5);
    const Attributes attributes{{"balance", 0.03}, {"z", 0.2}};
    for (const bool counted : kWithAndWithout) {
      Values inputs{statistics};
      if (counted) inputs.emplace_back(Value{DType::f32, {}, {37}});
      const double count = counted ? 37 : 1;
      const Value loss{DType::f32, {}, {reference::balance_loss(statistics, 0.03, 0.2, count)}};
      expect_close(run("balance_loss", inputs, attributes)[0], loss, 1e-6, "loss");
      expect_close(run("balance_loss_grad", inputs, attributes)[0], reference::balance_loss_grad(statistics, 0.03, 0.2, count),
                   1e-6, "dstatistics");
    }
  }
}

// All experts, some of them, and none of the tokens' choices; more room than rows, as much, and less.
TEST_P(DeviceKernel, RowsOfExperts) {
  struct Held {
    std::int64_t experts, first, held, choices;
  };
  for (const Held& h : {Held{1, 0, 1, 1}, {6, 0, 6, 2}, {8, 2, 3, 3}, {130, 64, 66, 8}}) {
    const Value x = random({2, 19, 24}), weights = f32(*this, {2, 19, h.choices}),
                experts = choose(*this, {2, 19}, h.experts, h.choices);
    const auto wanted = static_cast<std::int64_t>(std::count_if(experts.data.begin(), experts.data.end(), [&](double e) {
      return e >= static_cast<double>(h.first) && e < static_cast<double>(h.first + h.held);
    }));
    for (const std::int64_t room : {wanted, wanted + 13, std::max<std::int64_t>(wanted - 5, 1)}) {
      const Values expected = reference::moe_dispatch(x, experts, weights, room, h.first, h.held);
      LocalParts parts{.inputs = {}, .outputs = {{}, {}, {}, {h.first}, {}}, .output_types = {}};
      for (const auto& value : expected) parts.output_types.push_back(TensorType{value->dtype, value->shape});
      const Values made =
          test::run_kernel(*device_, "moe_dispatch", {x, experts, weights}, rows_of(room, h.experts), Repeated::same_bits, parts);
      for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_EQ(made[k]->data, expected[k]->data) << "output " << k;
      const Value &pairs = *expected[2], &counts = *expected[3];
      const Value rows = random({1, room, 24}), drow_weights = f32(*this, {room}), dy = random({2, 19, 24});
      expect_close(run("moe_combine", {rows, pairs, counts, experts})[0], reference::moe_combine(rows, pairs, experts),
                   tolerance(), "y");
      expect_close(run("moe_combine_grad", {dy, pairs, counts}, of_choices(h.choices))[0],
                   reference::moe_combine_grad(dy, pairs, h.choices), 0, "drows");
      const Values back = run("moe_dispatch_grad", {rows, drow_weights, pairs, counts, experts}),
                   expected_back = reference::moe_dispatch_grad(rows, drow_weights, pairs, experts);
      expect_close(back[0], *expected_back[0], tolerance(), "dx");
      expect_close(back[1], *expected_back[1], 0, "dweights");
    }
  }
}

// More room than tokens, as much, and less; a group of one, and ranks to which nothing goes.
TEST_P(DeviceKernel, TokensThatTravel) {
  struct Group {
    std::int64_t experts, ranks, choices, room;
  };
  for (const Group& g : {Group{1, 1, 1, 38}, {6, 2, 2, 20}, {8, 4, 3, 25}, {130, 10, 8, 50}, {64, 16, 2, 3}, {4, 2, 4, 38}}) {
    const Value x = random({2, 19, 24}), weights = f32(*this, {2, 19, g.choices}),
                experts = choose(*this, {2, 19}, g.experts, g.choices);
    const Attributes attributes{{"rows", g.room}, {"ranks", g.ranks}, {"experts", g.experts}, {"axis", AxisSet(0)}};
    const Values expected = reference::moe_send(x, experts, weights, g.ranks, g.room, g.experts);
    LocalParts parts{.inputs = {}, .outputs = std::vector<Origin>(expected.size()), .output_types = {}};
    for (const auto& value : expected) parts.output_types.push_back(TensorType{value->dtype, value->shape});
    const Values made = test::run_kernel(*device_, "moe_send", {x, experts, weights}, attributes, Repeated::same_bits, parts);
    for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_EQ(made[k]->data, expected[k]->data) << "output " << k;

    const Value &slots = *expected[3], rows = random(expected[0]->shape), dsent_weights = f32(*this, expected[2]->shape),
                dy = random({2, 19, 24});
    const auto at = [&](const Value& value) {
      return LocalParts{.inputs = {}, .outputs = {{}}, .output_types = {TensorType{value.dtype, value.shape}}};
    };
    const Value y = reference::moe_return(rows, slots), drows = reference::moe_return_grad(dy, slots, g.room);
    expect_close(test::run_kernel(*device_, "moe_return", {rows, slots}, attributes, Repeated::same_bits, at(y))[0], y,
                 tolerance(), "y");
    expect_close(test::run_kernel(*device_, "moe_return_grad", {dy, slots}, attributes, Repeated::same_bits, at(drows))[0], drows,
                 0, "drows");
    const Values back = reference::moe_send_grad(rows, dsent_weights, slots, experts, g.experts);
    LocalParts both{.inputs = {}, .outputs = {{}, {}}, .output_types = {}};
    for (const auto& value : back) both.output_types.push_back(TensorType{value->dtype, value->shape});
    const Values found =
        test::run_kernel(*device_, "moe_send_grad", {rows, dsent_weights, slots, experts}, attributes, Repeated::same_bits, both);
    expect_close(found[0], *back[0], tolerance(), "dx");
    expect_close(found[1], *back[1], 0, "dweights");
  }
}

TEST_P(DeviceKernel, GroupedProducts) {
  struct Groups {
    std::vector<double> counts;
    std::int64_t padding, in, out;
  };
  for (const Groups& g : {Groups{{1}, 0, 8, 8},
                          {{3, 0, 9, 1}, 4, 24, 40},
                          {{0, 0}, 5, 16, 8},
                          {{64, 130, 0, 7, 16}, 39, 32, 72},
                          {{0, 5, 0}, 0, 40, 24}}) {
    double rows = static_cast<double>(g.padding);
    for (const double count : g.counts) rows += count;
    const auto n = static_cast<std::int64_t>(rows), experts = static_cast<std::int64_t>(g.counts.size());
    const Value counts{DType::i32, {experts}, g.counts}, x = random({1, n, g.in}), w = random({experts, g.out, g.in}),
                                                         dy = random({1, n, g.out});
    expect_close(run("grouped_linear", {x, w, counts})[0], reference::grouped_linear(x, w, counts), tolerance(), "y");
    expect_close(run("grouped_linear_input_grad", {dy, w, counts})[0], reference::grouped_linear_input_grad(dy, w, counts),
                 tolerance(), "dx");
    for (const bool add : kWithAndWithout) {
      Value dw = reference::grouped_linear_weight_grad(x, dy, counts);
      const auto acc = accumulator(add, gradient(), dw);
      expect_close(run("grouped_linear_weight_grad", {x, dy, counts, acc}, with_gradient())[0], dw, tolerance(), "dw");
    }
  }
}

TEST_P(DeviceKernel, GatedRows) {
  for (const std::int64_t f : {1, 16, 72}) {
    const Value gate_up = random({1, 21, 2 * f}), weights = f32(*this, {21}), dh = random({1, 21, f});
    expect_close(run("moe_swiglu", {gate_up, weights})[0], reference::moe_swiglu(gate_up, weights), tolerance(), "h");
    const Values made = run("moe_swiglu_grad", {dh, gate_up, weights}),
                 expected = reference::moe_swiglu_grad(dh, gate_up, weights);
    expect_close(made[0], *expected[0], tolerance(), "dgate_up");
    expect_close(made[1], *expected[1], 1e-5, "drow_weights");
  }
}

}  // namespace
}  // namespace consist
