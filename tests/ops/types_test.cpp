// Ops refuse inputs of types that they do not take.
#include <gtest/gtest.h>

#include "consist/error.h"
#include "consist/op.h"

namespace consist {
namespace {

TEST(Types, OfMuonsUpdateAreF32AndOfTheValuesShape) {
  const Op& muon = registry().get("muon");
  const Attributes attributes{{"scale", 1.0}, {"weight_decay", 0.0}};
  const TensorType scalars{DType::f32, {4}}, value{DType::bf16, {6, 4}}, update{DType::f32, {6, 4}};
  EXPECT_EQ(muon.infer({scalars, value, update, update}, attributes).size(), 2U);
  EXPECT_THROW(muon.infer({scalars, value, TensorType{DType::bf16, {6, 4}}, update}, attributes), ProgramError);
  EXPECT_THROW(muon.infer({scalars, value, TensorType{DType::f32, {4, 6}}, update}, attributes), ProgramError);
  EXPECT_THROW(muon.infer({scalars, value, std::nullopt, update}, attributes), ProgramError);
  EXPECT_THROW(muon.infer({scalars, value, update, TensorType{DType::f32, {4, 6}}}, attributes), ProgramError);
  EXPECT_THROW(muon.infer({TensorType{DType::bf16, {4}}, value, update, update}, attributes), ProgramError);
}

}  // namespace
}  // namespace consist
