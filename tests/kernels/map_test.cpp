// Expressions on every device: map, map_in_place, margins, and map_update_N.
#include "tests/kernels/device_kernel.h"

namespace consist {
namespace {

using test::DeviceKernel;
using test::expect_close;
using test::Value;
using test::Values;

TEST_P(DeviceKernel, Map) {
  const Shape whole{3, 5, 12};
  const Value x = random(whole, 2), y = random(whole), channel = random({12}), row = random({3, 5, 1}), numbers = random({4});
  const auto check = [&](const std::string& f, const Values& in) {
    SCOPED_TRACE(f);
    const Values found = run("map", in, {{"f", f}}), expected = reference::map(in, f);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t k = 0; k < found.size(); ++k) expect_close(found[k], *expected[k], 2 * tolerance(), "result");
  };
  for (const char* f : {"gelu_tanh(a)*b", "gelu(a)*b", "silu(a)*b", "relu(a)-square(b)", "a/(1+abs(b))", "tanh(a)+exp(-abs(b))",
                        "max(a,b);min(a,b);greater(a,b);select(a,b,-b)",
                        "log(1+square(a))*rsqrt(1+square(b));sqrt(abs(a))+sign(b)", "t0=sigmoid(a);t0*b;t0*(1-t0)*b"})
    check(f, {x, y});
  check("a*b[c]+c[r]*d[2]-d[0]", {x, channel, row, numbers});
  check("1+a", {channel});
  check("a*b[0]", {x, reference::random_value(engine_, DType::f32, {}, 1, 0)});
  check("a", {random({2, 3, 257}, 100)});
  check("tanh(a);sigmoid(a);exp(a/4)", {random({1, 7, 1031}, 10)});
}

TEST_P(DeviceKernel, ReduceOverChannels) {
  // One channel and several packs; rows that are fewer and more than a block's; channels beyond a block of the processor's loop.
  for (const Shape& whole : {Shape{3, 5, 1}, Shape{2, 5, 12}, Shape{1, 3, 257}, Shape{2, 9, 1032}}) {
    const Value x = random(whole, 1, 0.3), y = random(whole), channel = random({whole.last()}),
                row = random({whole[0], whole[1], 1}), numbers = random({3});
    const auto check = [&](const char* f, const Values& in) {
      for (const char* by : {"sum", "max", "logsumexp"}) {
        SCOPED_TRACE(whole.text() + " " + by + " " + f);
        const Values found = run("reduce", in, {{"f", std::string(f)}, {"by", std::string(by)}});
        expect_close(found[0], *reference::reduce(in, Expressions::parse(f), by, whole)[0], 2 * tolerance(), "result");
      }
    };
    check("a", {x});
    check("a*a", {x});
    check("exp(a/4)*b", {x, y});
    check("a*b[c]+c[r]*d[2]", {x, channel, row, numbers});
  }
}

// What losses read: integers such as targets, the number of a channel, and rows without a dimension of channels, which they make.
TEST_P(DeviceKernel, ExpressionsOfTargets) {
  for (const Shape& whole : {Shape{3, 5, 12}, Shape{2, 3, 257}, Shape{1, 9, 1032}}) {
    SCOPED_TRACE(whole.text());
    const Value logits = random(whole, 3), row = random({whole[0], whole[1]});
    Value targets = random({whole[0], whole[1]});
    targets.dtype = DType::i32;
    for (std::size_t i = 0; i < targets.data.size(); ++i)
      targets.data[i] = i % 3 == 0 ? -1.0 : static_cast<double>((i * 7919) % static_cast<std::size_t>(whole.last()));
    const auto one = [&](const char* f, const Values& in) {
      expect_close(run("map", in, {{"f", std::string(f)}})[0], *reference::map(in, f)[0], 2 * tolerance(), f);
    };
    one("select(abs(channel-b[r]),0,a)", {logits, targets});
    one("a+channel/8", {logits});
    one("a*b[r]", {logits, row});
    one("select(1+b,a,0)", {row, targets});
    const Expressions f = Expressions::parse("select(abs(channel-b[r]),0,a*c[r])");
    const Values in{logits, targets, row};
    Value expected = *reference::reduce(in, f, "sum", whole)[0];
    expected.shape = {whole[0], whole[1]};
    const Attributes attributes{{"f", f.text()}, {"by", std::string("sum")}, {"squeeze", std::int64_t{1}}};
    expect_close(run("reduce", in, attributes)[0], expected, 2 * tolerance(), "squeezed");
    const Expressions rows = Expressions::parse("select(abs(channel-a[r]),0,b[r])");
    const Attributes of_rows{
        {"f", rows.text()}, {"columns", whole.last()}, {"rank", std::int64_t{3}}, {"dtype", std::string("f32")}};
    expect_close(run("map", {targets, row}, of_rows)[0], *reference::map({targets, row}, rows, whole)[0], 1e-6, "of rows");
  }
}

TEST_P(DeviceKernel, Total) {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 257}, Shape{4, 1031}, Shape{2, 3, 12}}) {
    SCOPED_TRACE(shape.text());
    const Value x = random(shape, 1, 0.3), y = random(shape), numbers = random({3});
    for (const char* f : {"a", "a*a", "exp(a/4)*b", "a*c[2]+b"}) {
      Values in{x, y, numbers};
      in.resize(static_cast<std::size_t>(Expressions::parse(f).inputs()));
      expect_close(run("total", in, {{"f", std::string(f)}})[0], *reference::total(in, f)[0], 2 * tolerance(), f);
    }
  }
}

// Rows whose channels are of no input, as gradients of sums have them.
TEST_P(DeviceKernel, ExpressionsOfRowsAlone) {
  const Value row = random({3, 5, 1}), channel = random({12});
  const Expressions f = Expressions::parse("a[r]*b[c]");
  Attributes attributes{{"f", f.text()}, {"columns", std::int64_t{12}}, {"dtype", std::string(name_of(dtype()))}};
  expect_close(run("map", {row, channel}, attributes)[0], *reference::map({row, channel}, f, {3, 5, 12})[0], tolerance(), "map");
  attributes.set("by", std::string("sum"));
  expect_close(run("reduce", {row, channel}, attributes)[0], *reference::reduce({row, channel}, f, "sum", {3, 5, 12})[0],
               2 * tolerance(), "reduce");
}

/// A matrix, and the slice of it that lies flat: all of its elements in rows where `count` is negative.
struct SliceOfMatrix {
  Shape matrix;
  std::int64_t first = 0, count = -1;

  bool is_flat() const { return count >= 0; }
  Shape shape() const { return is_flat() ? Shape{count} : matrix; }
  reference::MatrixSlice slice() const { return is_flat() ? reference::MatrixSlice{matrix[1], first} : reference::MatrixSlice{}; }
  test::LocalParts parts(std::size_t inputs, Types outputs) const {
    if (!is_flat()) return {};
    return {std::vector<Origin>(inputs, Origin{first}), std::vector<Origin>(outputs.size(), Origin{first}), std::move(outputs)};
  }
};
// Rows that are fewer and more than a block's, columns that fill no pack and several tiles; slices that begin and end within
// rows, with rows, at packs and not, of one row, of less than one, and of nothing.
const SliceOfMatrix slices_of_matrices[] = {{{7, 12}},
                                            {{5, 257}},
                                            {{130, 1032}},
                                            {{600, 36}},
                                            {{7, 12}, 0, 84},
                                            {{7, 12}, 3, 29},
                                            {{7, 12}, 28, 32},
                                            {{7, 12}, 24, 12},
                                            {{7, 12}, 17, 3},
                                            {{7, 12}, 84, 0},
                                            {{5, 257}, 514, 1},
                                            {{5, 257}, 300, 257},
                                            {{130, 1032}, 8, 65000},
                                            {{130, 1032}, 1031, 100001},
                                            {{600, 36}, 4000, 12004}};

TEST_P(DeviceKernel, MapInPlace) {
  const Value numbers{DType::f32, {3}, {0.5, -2, 0.25}};
  for (const SliceOfMatrix& of : slices_of_matrices) {
    SCOPED_TRACE(of.matrix.text() + " from " + std::to_string(of.first) + ", " + std::to_string(of.count));
    const auto f32 = [&](const Shape& shape) { return reference::random_value(engine_, DType::f32, shape, 1, 0); };
    const Value weight = random(of.shape()), master = f32(of.shape()), moved = random(of.shape()), row = f32({of.matrix[0]}),
                column = f32({of.matrix[1]});
    const auto check = [&](const char* f, const Values& in, const Types& made) {
      SCOPED_TRACE(f);
      const Values found =
          run_kernel(*device_, "map_in_place", in, {{"f", std::string(f)}}, test::Repeated::same_bits, of.parts(in.size(), made));
      const Values expected = reference::map(in, Expressions::parse(f), of.shape(), of.slice());
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t k = 0; k < found.size(); ++k)
        expect_close(found[k], *expected[k], made[k]->dtype == DType::f32 ? 4e-6 : tolerance(), "result");
    };
    const TensorType value{dtype(), of.shape()}, full{DType::f32, of.shape()};
    check("a-b*c[r]*d[c]*e[2]", {weight, moved, row, column, numbers}, {value});
    check("t0=b*e[0]+d[c]-c*f[r];t0;t0", {weight, master, moved, column, numbers, row}, {value, full});
    if (!of.is_flat()) check("a-b*c[r]", {master, moved, row}, {full});
    check("a+c[0]*(b-a)", {master, moved, numbers}, {full});
  }
}

TEST_P(DeviceKernel, Margins) {
  const Value numbers{DType::f32, {3}, {0.5, -2, 0.25}};
  for (const SliceOfMatrix& of : slices_of_matrices) {
    SCOPED_TRACE(of.matrix.text() + " from " + std::to_string(of.first) + ", " + std::to_string(of.count));
    const Value x = random(of.shape(), 1, 0.5), row = reference::random_value(engine_, DType::f32, {of.matrix[0]}, 1, 0.5),
                column = reference::random_value(engine_, DType::f32, {of.matrix[1]}, 1, 0.5);
    const Types made{TensorType{DType::f32, {of.matrix[0]}}, TensorType{DType::f32, {of.matrix[1]}}};
    const auto check = [&](const char* f, const Values& in) {
      SCOPED_TRACE(f);
      const Values expected = reference::margins(in, Expressions::parse(f), of.shape(), of.matrix[0], of.slice());
      const Values found =
          run_kernel(*device_, "margins", in, {{"f", std::string(f)}}, test::Repeated::same_bits, of.parts(in.size(), made));
      expect_close(found[0], *expected[0], 4e-6, "rows");
      expect_close(found[1], *expected[1], 4e-6, "columns");
      const Attributes alone{{"f", std::string(f)}, {"columns_only", std::int64_t{1}}};
      expect_close(
          run_kernel(*device_, "margins", in, alone, test::Repeated::same_bits, of.parts(in.size(), {std::nullopt, made[1]}))[1],
          *expected[1], 4e-6, "columns only");
    };
    check("square(a*b[0])", {x, numbers});
    check("a*b[r]*c[c]+d[2]", {x, row, column, numbers});
  }
}

/// Momentum, and a scalar state that counts steps: two parameters in one instruction.
TEST_P(DeviceKernel, MapUpdate) {
  const Attributes rule{{"f", std::string("t0=0.9*e+d[0]*b; t1=f[0]+1; a-c[0]/t1*t0; t0; t1")}};
  const Value rate{DType::f32, {2}, {0.5, 7}};
  for (const bool has_master : {false, true}) {
    if (narrow() && !has_master) continue;  // bf16 holds less than a step changes
    for (const double clip : {0.25, -1.0}) {
      Values in{rate, Value{DType::f32, {}, {clip}}};
      for (const Shape& shape : {Shape{7, 12}, Shape{5}}) {
        Value weight = reference::random_value(engine_, DType::f32, shape, 1, 0), value = weight;
        value.dtype = dtype();
        for (double& x : value.data) x = reference::rounded(x, dtype());
        in.insert(in.end(), {value, reference::random_value(engine_, gradient(), shape, 1, 0),
                             has_master ? std::optional(weight) : std::nullopt,
                             reference::random_value(engine_, DType::f32, shape, 1, 0), Value{DType::f32, {}, {2}}});
      }
      const Values found = run("map_update_2", in, rule);
      for (std::size_t p = 0; p < 2; ++p) {
        const Value before = *in[2 + 5 * p + (has_master ? 2 : 0)], gradient = *in[3 + 5 * p], momentum = *in[5 + 5 * p];
        Value after = before, moved = momentum;
        for (std::size_t i = 0; i < after.data.size() && clip >= 0; ++i) {
          moved.data[i] = 0.9 * momentum.data[i] + clip * gradient.data[i];
          after.data[i] -= 0.5 / 3 * moved.data[i];
        }
        expect_close(found[4 * p], after, tolerance(), "value");
        if (has_master) expect_close(found[4 * p + 1], after, 4e-6, "master");
        expect_close(found[4 * p + 2], moved, 4e-6, "momentum");
        EXPECT_EQ(found[4 * p + 3]->data[0], clip < 0 ? 2 : 3);
      }
    }
  }
}

Value as_dtype(Value value, DType dtype) {
  test::HostTensor rounded(dtype, value.shape);
  value.dtype = dtype;
  for (std::size_t i = 0; i < value.data.size(); ++i) {
    rounded.set(static_cast<std::int64_t>(i), value.data[i]);
    value.data[i] = rounded[static_cast<std::int64_t>(i)];
  }
  return value;
}

// Momentum in 8 bits with a scale for each block: every code is the nearest one, and no other block changes a scale.
TEST_P(DeviceKernel, MapUpdateOfBlocks) {
  const auto check = [&](const Shape& shape, std::int64_t block, DType code, double clip, bool has_master) {
    SCOPED_TRACE(shape.text() + " in blocks of " + std::to_string(block) + ", " + std::string(name_of(code)) + ", clip " +
                 std::to_string(clip) + (has_master ? ", master" : ""));
    const double most = code == DType::e4m3 ? 448 : 57344, half_step = code == DType::e4m3 ? 1.0 / 16 : 1.0 / 8;
    const auto random_f32 = [&](const Shape& of, double scale) {
      return reference::random_value(engine_, DType::f32, of, scale, 0);
    };
    Shape of_blocks = shape;
    of_blocks[shape.rank() - 1] /= block;
    const Value weight = random_f32(shape, 1), value = as_dtype(weight, dtype()),
                codes = as_dtype(random_f32(shape, most / 4), code), scales = random_f32(of_blocks, 1e-3);
    const Value gradient_value = reference::random_value(engine_, gradient(), shape, 1, 0);
    const Values in{Value{DType::f32, {1}, {0.5}},
                    Value{DType::f32, {}, {clip}},
                    value,
                    gradient_value,
                    has_master ? std::optional(weight) : std::nullopt,
                    codes,
                    scales};
    const std::string most_text = std::to_string(static_cast<int>(most)), moved = "t0=0.5*f[b]*e+d[0]*b;";
    const Values found = run("map_update_2", in,
                             {{"f", moved + "t1=max(g[b],1e-30)/" + most_text + ";a-c[0]*t0;t0/t1;t1"},
                              {"largest", moved + "abs(t0)"},
                              {"block", block}});
    Value after = has_master ? weight : value, expected_scales = scales;
    std::vector<double> moments;
    for (std::size_t i = 0; i < after.data.size(); ++i) {
      moments.push_back(0.5 * scales.data[i / static_cast<std::size_t>(block)] * codes.data[i] + clip * gradient_value.data[i]);
      if (clip >= 0) after.data[i] -= 0.5 * moments[i];
    }
    for (std::size_t b = 0; b < scales.data.size() && clip >= 0; ++b) {
      double largest = 1e-30;
      for (std::size_t i = 0; i < static_cast<std::size_t>(block); ++i)
        largest = std::max(largest, std::abs(moments[b * static_cast<std::size_t>(block) + i]));
      expected_scales.data[b] = largest / most;
    }
    expect_close(found[0], after, tolerance(), "value");
    if (has_master) expect_close(found[1], after, 4e-6, "master");
    expect_close(found[3], expected_scales, 4e-6, "scales");
    for (std::size_t i = 0; i < moments.size(); ++i) {
      const double scale = expected_scales.data[i / static_cast<std::size_t>(block)],
                   smallest = code == DType::e4m3 ? 1.0 / 512 : 1.0 / 65536;
      if (clip < 0)
        ASSERT_EQ(found[2]->data[i], codes.data[i]) << i;
      else
        ASSERT_LE(std::abs(scale * found[2]->data[i] - moments[i]),
                  half_step * std::abs(moments[i]) + scale * (0.5 * smallest + 2e-7 * most))  // two moments may cancel out
            << i;
    }
  };
  for (const DType code : {DType::e4m3, DType::e5m2}) {
    for (const bool has_master : {false, true}) {
      if (narrow() && !has_master) continue;
      check({7, 12}, 4, code, 0.25, has_master);
      check({7, 12}, 4, code, -1, has_master);
      check({2, 3, 9}, 3, code, 1, has_master);
      check({5, 64}, 64, code, 1, has_master);
      check({40}, 8, code, 1, has_master);
      check({300, 1056}, 96, code, 1, has_master);
      check({0}, 8, code, 1, has_master);
    }
  }
}

}  // namespace
}  // namespace consist
