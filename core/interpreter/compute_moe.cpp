// Formulas of mixtures of experts, from core/reference/moe.h.
#include "core/interpreter/work.h"
#include "core/reference/moe.h"
#include "core/reference/moe_sends.h"

namespace consist::interpreter {
namespace {

using reference::Value;
using reference::Values;

bool by_sigmoids(const Work& w) {
  return w.attributes().integer_or("sigmoid", 0) != 0;
}
void route(Work& w) {
  const Value ids = w.has(1) ? w.in(1) : Value{}, intervals = w.has(2) ? w.in(2) : Value{};
  const reference::StatedLoad load{ids, intervals, w.attributes().integer_or("router", 0)};
  const Value bias = w.has(3) ? w.in(3) : Value{};
  const reference::SigmoidRouter sigmoid{w.has(3) ? &bias : nullptr, w.attributes().integer_or("groups", 1),
                                         w.attributes().integer_or("kept_groups", 1)};
  const Values made = reference::moe_route(w.in(0), w.attributes().integer("choices"), w.attributes().integer("normalize") != 0,
                                           w.has(1) ? &load : nullptr, by_sigmoids(w) ? &sigmoid : nullptr);
  for (std::size_t k = 0; k < 3; ++k) w.out(k, *made[k]);
}
void route_grad(Work& w) {
  const Value dweights = w.has(2) ? w.in(2) : Value{}, dstatistics = w.has(3) ? w.in(3) : Value{};
  w.out(0, reference::moe_route_grad(w.in(0), w.in(1), w.has(2) ? &dweights : nullptr, w.has(3) ? &dstatistics : nullptr,
                                     w.attributes().integer("normalize") != 0, by_sigmoids(w)));
}

void count_choices(Work& w) {
  const Attributes& a = w.attributes();
  Value counts = reference::zeros(DType::f32, {a.integer("rows"), a.integer("experts")});
  reference::count_choices(counts, w.in(0), a.integer("row"));
  w.out_sum(0, 1, counts);
}
double count_of(const Work& w) {
  return w.has(1) ? w.scalar(1) : 1;
}
void balance_loss(Work& w) {
  w.out(0, reference::balance_loss(w.in(0), w.attributes().real("balance"), w.attributes().real("z"), count_of(w)));
}
void balance_loss_grad(Work& w) {
  w.out(0, reference::balance_loss_grad(w.in(0), w.attributes().real("balance"), w.attributes().real("z"), count_of(w)));
}

void send(Work& w) {
  const Shape sent = w.out_shape(0);
  const Values made = reference::moe_send(w.in(0), w.in(1), w.in(2), sent[1], sent[2], w.attributes().integer("experts"));
  for (std::size_t k = 0; k < made.size(); ++k) w.out(k, *made[k]);
}
void send_grad(Work& w) {
  const Values made = reference::moe_send_grad(w.in(0), w.in(1), w.in(2), w.in(3), w.attributes().integer("experts"));
  w.out(0, *made[0]);
  w.out(1, *made[1]);
}
void send_back(Work& w) {
  w.out(0, reference::moe_return(w.in(0), w.in(1)));
}
void send_back_grad(Work& w) {
  w.out(0, reference::moe_return_grad(w.in(0), w.in(1), w.out_shape(0)[2]));
}

void dispatch(Work& w) {
  const Values made =
      reference::moe_dispatch(w.in(0), w.in(1), w.in(2), w.out_shape(0)[1], w.out_origin(3, 0), w.out_shape(3)[0]);
  w.out_all(made);
}
void dispatch_grad(Work& w) {
  const Values made = reference::moe_dispatch_grad(w.in(0), w.in(1), w.in(2), w.in(4));
  w.out(0, *made[0]);
  w.out(1, *made[1]);
}
void combine(Work& w) {
  w.out(0, reference::moe_combine(w.in(0), w.in(1), w.in(3)));
}
void combine_grad(Work& w) {
  w.out_all({reference::moe_combine_grad(w.in(0), w.in(1), w.attributes().integer("choices"))});
}

void grouped_linear(Work& w) {
  w.out(0, reference::grouped_linear(w.in(0), w.in(1), w.in(2)));
}
void grouped_linear_input_grad(Work& w) {
  w.out(0, reference::grouped_linear_input_grad(w.in(0), w.in(1), w.in(2)));
}
void grouped_linear_weight_grad(Work& w) {
  w.out_sum(0, 3, reference::grouped_linear_weight_grad(w.in(0), w.in(1), w.in(2)));
}
void moe_swiglu(Work& w) {
  w.out_all({reference::moe_swiglu(w.in(0), w.in(1))});
}
void moe_swiglu_grad(Work& w) {
  const Values made = reference::moe_swiglu_grad(w.in(0), w.in(1), w.in(2));
  w.out_all(made);
}

}  // namespace

const std::vector<std::pair<std::string_view, Formula>>& moe_formulas() {
  static const std::vector<std::pair<std::string_view, Formula>> table{{"moe_route", route},
                                                                       {"moe_route_grad", route_grad},
                                                                       {"count_choices", count_choices},
                                                                       {"balance_loss", balance_loss},
                                                                       {"balance_loss_grad", balance_loss_grad},
                                                                       {"moe_send", send},
                                                                       {"moe_send_grad", send_grad},
                                                                       {"moe_return", send_back},
                                                                       {"moe_return_grad", send_back_grad},
                                                                       {"moe_dispatch", dispatch},
                                                                       {"moe_dispatch_amax", dispatch},
                                                                       {"moe_dispatch_grad", dispatch_grad},
                                                                       {"moe_combine", combine},
                                                                       {"moe_combine_grad", combine_grad},
                                                                       {"moe_combine_grad_amax", combine_grad},
                                                                       {"grouped_linear", grouped_linear},
                                                                       {"grouped_linear_input_grad", grouped_linear_input_grad},
                                                                       {"grouped_linear_weight_grad", grouped_linear_weight_grad},
                                                                       {"moe_swiglu", moe_swiglu},
                                                                       {"moe_swiglu_amax", moe_swiglu},
                                                                       {"moe_swiglu_grad", moe_swiglu_grad},
                                                                       {"moe_swiglu_grad_amax", moe_swiglu_grad}};
  return table;
}

}  // namespace consist::interpreter
