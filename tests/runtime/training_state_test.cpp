// Memory of a rank before the first step, element by element, for every way of dividing parameters.
#include "core/state/training_state.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

#include "consist/bfloat16.h"
#include "consist/error.h"
#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/program/local_ranges.h"
#include "core/state/initial_values.h"

namespace consist {
namespace {

struct Division {
  const char* name;
  const char* strategy;
  int ranks;
  const char* precision;
};

class ValuesOf : public ::testing::TestWithParam<Division> {
 protected:
  /// Calls `body` with the state of each rank, allocated; with `own` all that belongs to parameters is StateKind::per_rank.
  void for_each_rank(const std::function<void(TrainingState&, int rank)>& body, bool own = false) {
    PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
    RunConfig config;
    config.model = "qwen3-tiny";
    config.strategies = parse_strategies(GetParam().strategy);
    if (GetParam().strategy == std::string("zero3-offload"))
      config.plugin_options["zero3-offload"]["param-persistence-threshold"] = "100";
    config.precision = GetParam().precision;
    config.ranks = GetParam().ranks;
    config.device = "cpu";
    config.batch = 1;
    config.accumulation = 2;
    config.sequence = 16;
    const Parts parts = make_parts(config, host);
    const std::shared_ptr<Device> device = make_device(config, host).device;
    device->open(0, 1);
    const Layout layout = lay_out(parts.uses, config.ranks);
    for (int rank = 0; rank < config.ranks; ++rank) {
      Program step = compile_step(parts.compile_request(config), layout, rank);
      const auto make_own = [&](TensorId tensor) {
        if (own && tensor != no_tensor) step[tensor].state_kind = StateKind::per_rank;
      };
      for (const Parameter& p : step.parameters) {
        make_own(p.tensor);
        make_own(p.master);
        for (const ParameterState& kept : p.states) make_own(kept.tensor);
      }
      TrainingState state({{train_program, std::move(step)}}, *device, {}, rank, 0);
      state.allocate(false);
      body(state, rank);
    }
  }

  /// Elements of a tensor on this rank that are not what `expected` says of their logical index; the tensor's own dtype.
  static std::int64_t wrong_elements(TrainingState& state, int rank, TensorId tensor,
                                     const std::function<float(std::int64_t)>& expected) {
    if (tensor == no_tensor) return 0;
    const Program& program = state.step().program();
    const Tensor& t = program[tensor];
    const char* data = state.step().buffer(tensor).as<char>();  // the processor's memory
    std::int64_t wrong = 0;
    for (const LocalRange& range : local_ranges(t.shape, t.placements, program.mesh, rank)) {
      for (std::int64_t i = 0; i < range.count; ++i) {
        const float value = expected(range.logical + i);
        const char* found = data + (range.local + i) * static_cast<std::int64_t>(size_of(t.dtype));
        const std::uint16_t rounded = to_bfloat16(value);
        const void* same = t.dtype == DType::f32 ? static_cast<const void*>(&value) : &rounded;
        if (std::memcmp(found, same, size_of(t.dtype)) != 0) ++wrong;
      }
    }
    return wrong;
  }
  static void expect_parameters(TrainingState& state, int rank,
                                const std::function<std::vector<float>(const Parameter&, std::int64_t elements)>& whole) {
    const Program& program = state.step().program();
    ASSERT_FALSE(program.parameters.empty());
    for (const Parameter& p : program.parameters) {
      const std::vector<float> values = whole(p, program[p.tensor].shape.elements());
      for (TensorId tensor : {p.tensor, p.master}) {
        const auto at = [&](std::int64_t logical) { return values.at(static_cast<std::size_t>(logical)); };
        EXPECT_EQ(wrong_elements(state, rank, tensor, at), 0) << p.name << (tensor == p.master ? ", master" : "");
      }
      for (const ParameterState& kept : p.states)
        EXPECT_EQ(wrong_elements(state, rank, kept.tensor, [](std::int64_t) { return 0.0F; }), 0) << p.name;
    }
  }
};

/// Not representable in bf16, and different for every element and name.
float number_of(const std::string& name, std::int64_t index) {
  return static_cast<float>(index) + static_cast<float>(name.size()) / 64;
}

TEST_P(ValuesOf, InitialWeightsAreTheSameModelsParts) {
  for_each_rank([](TrainingState& state, int rank) {
    const auto expected = [](std::uint64_t seed) {
      return [seed](const Parameter& p, std::int64_t elements) {
        std::vector<float> values(static_cast<std::size_t>(elements));
        initial_values(values, seed, p.name, 0, p.init_mean, p.init_std);
        return values;
      };
    };
    state.initialize(5, 3);
    expect_parameters(state, rank, expected(5));
    state.initialize(6);
    expect_parameters(state, rank, expected(6));
  });
}

TEST_P(ValuesOf, LoadedWeightsAreInTheirPlaces) {
  for_each_rank([](TrainingState& state, int rank) {
    state.load_weights(
        [](const std::string& name, std::int64_t first, std::span<float> out) {
          for (float& value : out) value = number_of(name, first++);
        },
        3);
    expect_parameters(state, rank, [](const Parameter& p, std::int64_t elements) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < elements; ++i) values.push_back(number_of(p.name, i));
      return values;
    });
  });
}

TEST_P(ValuesOf, ACheckpointsValuesAreInTheirPlacesAndParametersFollow) {
  for_each_rank([](TrainingState& state, int rank) {
    state.initialize(1);
    state.load_values(
        state.values(),
        [](const TrainingState::Value& value, std::int64_t first, std::int64_t count, void* out) {
          for (std::int64_t i = 0; i < count; ++i) {
            const float number = number_of(value.name, first + i);
            if (value.dtype == DType::f32) {
              static_cast<float*>(out)[i] = number;
            } else {
              static_cast<std::uint16_t*>(out)[i] = to_bfloat16(number);
            }
          }
        },
        3);
    const auto expect = [&](const std::string& name, TensorId tensor) {
      const auto at = [&](std::int64_t logical) { return number_of(name, logical); };
      EXPECT_EQ(wrong_elements(state, rank, tensor, at), 0) << name;
    };
    for (const Parameter& p : state.step().program().parameters) {
      expect(p.name, p.tensor);
      expect(p.name, p.master);
      for (const ParameterState& kept : p.states) expect(p.name + "." + kept.name, kept.tensor);
    }
  });
}

// Values of ranks' own are saved whole, in the order of their memory; a run still begins with the model's weights.
TEST_P(ValuesOf, RanksOwnValuesAreInTheirPlacesAndBeginAlike) {
  const auto body = [](TrainingState& state, int rank) {
    state.initialize(5);
    expect_parameters(state, rank, [](const Parameter& p, std::int64_t elements) {
      std::vector<float> values(static_cast<std::size_t>(elements));
      initial_values(values, 5, p.name, 0, p.init_mean, p.init_std);
      return values;
    });
    const Program& program = state.step().program();
    for (const TrainingState::Value& value : state.values()) {
      EXPECT_EQ(value.kind, StateKind::per_rank) << value.name;
      EXPECT_EQ(value.shape, program.local(value.tensor)) << value.name;
    }
    state.load_values(state.values(), [](const TrainingState::Value& value, std::int64_t first, std::int64_t count, void* out) {
      for (std::int64_t i = 0; i < count; ++i) {
        const float number = number_of(value.name, first + i);
        const std::uint16_t rounded = to_bfloat16(number);
        const void* element = value.dtype == DType::f32 ? static_cast<const void*>(&number) : &rounded;
        const std::size_t size = size_of(value.dtype);
        std::memcpy(static_cast<char*>(out) + static_cast<std::size_t>(i) * size, element, size);
      }
    });
    for (const TrainingState::Value& value : state.values()) {
      if (value.dtype != DType::f32) continue;
      std::vector<float> found(static_cast<std::size_t>(value.shape.elements()));
      state.read_value(value, 0, value.shape.elements(), found.data());
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] != number_of(value.name, static_cast<std::int64_t>(i));
      EXPECT_EQ(wrong, 0) << value.name;
    }
  };
  for_each_rank(body, true);
}

TEST_P(ValuesOf, AFileThatCannotBeReadEndsIt) {
  for_each_rank([](TrainingState& state, int /*rank*/) {
    std::atomic<int> calls{0};
    const auto load = [&] {
      state.load_weights(
          [&](const std::string& /*name*/, std::int64_t /*first*/, std::span<float> /*out*/) {
            if (++calls == 5) throw DataError("weights.safetensors is cut off");
          },
          3);
    };
    EXPECT_THROW(load(), DataError);
  });
}

INSTANTIATE_TEST_SUITE_P(Divisions, ValuesOf,
                         ::testing::Values(Division{"whole_fp32", "ddp", 1, "fp32"}, Division{"whole_bf16", "ddp", 1, "bf16"},
                                           Division{"rows_and_columns_bf16", "tp-sp=2", 2, "bf16"},
                                           Division{"rows_and_columns_fp32", "tp-sp=2", 2, "fp32"},
                                           Division{"flat_masters", "zero2", 3, "bf16"},
                                           Division{"flat", "zero3-offload", 3, "bf16"},
                                           Division{"columns_of_which_flat_parts", "tp-sp=2+zero2", 4, "bf16"},
                                           Division{"stages", "pipeline=2", 2, "bf16"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
