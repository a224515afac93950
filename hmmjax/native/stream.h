// One running video, see Stream in chain.h.
#pragma once
#include "backward.h"

namespace {

// What is kept of a frame: the logarithm of the factors removed so far, its filtered message, and its likelihoods.
struct Slot {
  double* removed;
  Message message;
  Frame frame;
  static long size(const Model& m) { return W + Message::size(m) + Frame::size(m); }
  Slot(double* at, const Model& m) : removed(at), message(at + W, m), frame(at + W + Message::size(m), m) {}
};

class Running final : public Stream {
 public:
  Running(const Model& model, int64_t lag)
      : m(model), lag_(lag), steps(m, video), tools(m), relative(m.Lp), weights(m.Lp), backward(m, video, smoothed) {}

  int64_t slot_size() const override { return Slot::size(m); }
  double step(double* memory, int64_t t, const Video& given, const Marginals& now, const Marginals& lagged) override;
  void smooth(double* memory, int64_t frames, int64_t count, const Marginals& out) override;
  void read(double* memory, int64_t t, double* filtered, double* phases, double* configs) override;
  double log_likelihood(double* memory, int64_t t) override;
  void write(double* memory, int64_t t, const double* filtered, const double* phases, const double* configs,
             double total) override;

 private:
  Slot at(double* memory, int64_t t) const { return Slot(memory + t % (lag_ + 2) * slot_size(), m); }
  void smooth_window(double* memory, int64_t first, int64_t count, bool all, const Marginals& out) {
    smoothed.phases = out.phases, smoothed.tools = out.tools;
    backward.smooth(count, all, [&](int64_t t) { return at(memory, first + t); });
  }

  const Model& m;
  const int64_t lag_;
  Video video;        // of the frame at work
  Gradient smoothed;  // marginals are derivatives
  Steps steps;
  ToolSums tools;
  Relative relative;
  Buffer weights;
  Backward backward;
};

double Running::step(double* memory, int64_t t, const Video& given, const Marginals& now, const Marginals& lagged) {
  video = given;
  if (t == 0 && starts_far(m, video)) return NAN;
  const Slot slot = at(memory, t);
  *slot.removed = steps.load_frame(0, slot.frame);
  if (t == 0) {
    steps.first(slot.frame, slot.message);
  } else {
    const Slot before = at(memory, t - 1);
    *slot.removed += *before.removed;
    steps.next(slot.frame, before.message, slot.message, nullptr);
  }
  const Total total = write_filtered(slot.message, tools, relative, weights, now, 0);
  if (total.value == 0) return -INFINITY;
  if (lag_ && t >= lag_) smooth_window(memory, t - lag_, lag_ + 1, false, lagged);
  return *slot.removed + total.log();
}

void Running::smooth(double* memory, int64_t frames, int64_t count, const Marginals& out) {
  smooth_window(memory, frames - count, count, true, out);
}

void Running::read(double* memory, int64_t t, double* filtered, double* phases, double* configs) {
  const Slot slot = at(memory, t);
  const Total total(relative, slot.message.scale, slot.message.totals, weights, m.Lp);
  for (long q = 0; q < m.L; ++q) {
    phases[q] = log(slot.frame.phases[q]) + slot.frame.scale[q] * LN2;
    const double power = (slot.message.scale[q] - total.top) * LN2 - log(total.value);
    for (long c = 0; c < m.C; ++c) filtered[q * m.C + c] = log(slot.message.rows[c * m.Lp + q]) + power;
  }
  for (long c = 0; c < m.C; ++c) configs[c] = log(slot.frame.configs[c]);
}

double Running::log_likelihood(double* memory, int64_t t) {
  const Slot slot = at(memory, t);
  return *slot.removed + Total(relative, slot.message.scale, slot.message.totals, weights, m.Lp).log();
}

void Running::write(double* memory, int64_t t, const double* filtered, const double* phases, const double* configs,
                    double total) {
  const Slot slot = at(memory, t);
  video = {1, 1, {phases, true}, {}, {configs, true}};
  steps.load_frame(0, slot.frame);
  const Message& x = slot.message;
  for (long i = 0; i < Message::size(m); ++i) x.scale[i] = 0;
  for (long q = 0; q < m.L; ++q) {
    double top = -INFINITY;
    for (long c = 0; c < m.C; ++c) top = fmax(top, filtered[q * m.C + c]);
    if (top == -INFINITY) continue;
    x.scale[q] = QUANTUM * rint(top / (LN2 * QUANTUM));
    for (long c = 0; c < m.C; ++c)
      x.totals[q] += x.rows[c * m.Lp + q] = exp(filtered[q * m.C + c] - x.scale[q] * LN2);
  }
  steps.rescale(x);
  *slot.removed = total - Total(relative, x.scale, x.totals, weights, m.Lp).log();
}

Stream* stream(const void* model, int64_t lag) {
  const Model& m = *static_cast<const Model*>(model);
  return m.is_safe ? new Running(m, lag) : nullptr;
}

}  // namespace
