// Compares the compiled recursions with dense matrices in long double, on random shapes. Built with sanitizers, so that
// reads and writes outside of arrays, which are exactly as large as needed, end the program.
//
//     fuzz RUNS, compiled with -DISA=avx512, avx2 or baseline
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "chain.h"

using namespace hmmjax;
using Real = long double;
using Table = std::vector<double>;

std::mt19937_64 generator;

int below(int n) { return static_cast<int>(generator() % n); }
double uniform() { return (generator() >> 11) * 0x1p-53; }

// An array of exactly the given size, in float or double.
struct Array {
  bool is_double;
  std::unique_ptr<float[]> floats;
  std::unique_ptr<double[]> doubles;
  size_t size;
  Array(size_t n, bool d) : is_double(d), floats(d ? nullptr : new float[n]()), doubles(d ? new double[n]() : nullptr), size(n) {}
  double get(size_t i) const { return is_double ? doubles[i] : floats[i]; }
  void set(size_t i, double x) { is_double ? doubles[i] = x : floats[i] = static_cast<float>(x); }
  In in() const { return {is_double ? static_cast<void*>(doubles.get()) : floats.get(), is_double}; }
  Out out() { return {is_double ? static_cast<void*>(doubles.get()) : floats.get(), is_double}; }
};

void fill_simplex(Array& a, size_t first, int n, double zeros) {
  Table x(n);
  double total = 0;
  for (auto& v : x) total += v = uniform() < zeros ? 0 : pow(uniform(), 3) + 1e-4;
  if (total == 0) total = x[below(n)] = 1;
  for (int i = 0; i < n; ++i) a.set(first + i, x[i] / total);
}

void fill_logs(Array& a, double scale, double impossible) {
  for (size_t i = 0; i < a.size; ++i) a.set(i, uniform() < impossible ? -INFINITY : scale * log(uniform() + 1e-300) + 3);
}

hmmjax::Stream::~Stream() = default;

bool failed = false;

void compare(const char* what, double have, Real want, double tolerance) {
  // Derivatives at a table's zero may exceed float's range, as may a float's infinity.
  const double w = std::isinf(have) && want > 3e38 ? have : static_cast<double>(want);
  if (have == w || fabs(have - w) <= tolerance * (1 + fabs(w))) return;
  fprintf(stderr, "%s: %.17g instead of %.17g\n", what, have, w);
  failed = true;
}

// Runs the video frame by frame, with a pause in which the state is written to other memory. Wanted are the filter's
// marginals, and the smoother's where there are any.
void run_stream(const Recursions& r, const void* model, const Video& video, long L, long K, long C, const Array& f_phases,
                const Array& f_tools, const Array& g_phases, const Array& g_tools, Real value) {
  const bool d = f_phases.is_double;
  const int64_t lag = below(4), pause = below(video.length);
  std::unique_ptr<Stream> stream(r.stream(model, lag));
  if (!stream) return;
  const auto frame = [&](const In& x, int64_t at) -> In {
    if (!x.data) return {};
    return {static_cast<const char*>(x.data) + at * (x.is_double ? sizeof(double) : sizeof(float)), x.is_double};
  };
  const size_t size = stream->slot_size() * (lag + 2);
  std::unique_ptr<double[]> memory(new double[size]);
  Array phases(L, d), tools(2 * K, d), late_phases(L, d), late_tools(2 * K, d);
  const double tolerance = d ? 1e-11 : 2e-6;
  double total = 0;
  for (int64_t t = 0; t < video.length; ++t) {
    const Video now{1, 1, frame(video.phases, t * L), frame(video.tools, t * 2 * K), frame(video.configs, t * C)};
    if (below(3) == 0) {  // an observation that is taken back
      Array zeros(L, d);
      stream->step(memory.get(), t, {1, 1, zeros.in(), {}, {}}, {phases.out(), tools.out()}, {late_phases.out(), late_tools.out()});
    }
    total = stream->step(memory.get(), t, now, {phases.out(), tools.out()}, {late_phases.out(), late_tools.out()});
    if (t == 0 && std::isnan(total)) return;
    for (long q = 0; q < L; ++q) compare("phase of a stream", phases.get(q), f_phases.get(t * L + q), tolerance);
    for (long k = 0; k < 2 * K; ++k) compare("tool of a stream", tools.get(k), f_tools.get(t * 2 * K + k), tolerance);
    if (t != pause) continue;
    std::unique_ptr<double[]> other(new double[size]);
    Table filtered(L * C), of_phases(L), of_configs(C);
    for (int64_t i = std::max<int64_t>(t - lag, 0); i <= t; ++i) {
      stream->read(memory.get(), i, filtered.data(), of_phases.data(), of_configs.data());
      stream->write(other.get(), i, filtered.data(), of_phases.data(), of_configs.data(), stream->log_likelihood(memory.get(), i));
    }
    compare("log-likelihood that was kept", stream->log_likelihood(other.get(), t), total, 1e-11);
    memory.swap(other);
  }
  compare("log-likelihood of a stream", total, value, 1e-11);
  const int64_t count = std::min<int64_t>(lag + 1, video.length), first = video.length - count;
  Array s_phases(count * L, d), s_tools(count * 2 * K, d);
  stream->smooth(memory.get(), video.length, count, {s_phases.out(), s_tools.out()});
  for (long i = 0; i < count * L; ++i) compare("smoothed phase", s_phases.get(i), g_phases.get(first * L + i), tolerance);
  for (long i = 0; i < count * 2 * K && g_tools.size; ++i)
    compare("smoothed tool", s_tools.get(i), g_tools.get(first * 2 * K + i), tolerance);
  if (lag == 0 || count <= lag) return;
  for (long q = 0; q < L; ++q) compare("lagged phase", late_phases.get(q), s_phases.get(q), tolerance);
  for (long k = 0; k < 2 * K; ++k) compare("lagged tool", late_tools.get(k), s_tools.get(k), tolerance);
}

void run(const Recursions& r) {
  const bool d = below(2);
  const int L = 1 + below(below(4) ? 4 : 19), K = below(5);
  std::vector<int64_t> sizes;
  int C = 1;
  if (K && below(4) == 0) {
    sizes.push_back(C = 1 << K);  // interacting
  } else {
    for (int k = 0; k < K; ++k) {
      const int n = k + 1 < K && below(5) == 0 ? (++k, 4) : 2;
      sizes.push_back(n), C *= n;
    }
  }
  const int T = 1 + below(below(6) ? 20 : 150), S = L * C;
  const int length = below(5) ? T : below(T + 1);
  const double zeros = below(2) ? 0 : 0.3, impossible = below(3) ? 0 : 0.02, scale = below(2) ? 1 : below(4) ? 12 : 300;
  size_t per_phase = 0;
  for (auto n : sizes) per_phase += n * n;
  Array initial(S, d), transition(L * L, d), blocks(L * per_phase, d), phases(size_t(T) * L, d);
  const bool has_tools = K && below(4), has_configs = K && (!has_tools || below(3) == 0);
  Array tools(has_tools ? size_t(T) * K * 2 : 0, d), configs(has_configs ? size_t(T) * C : 0, d);
  fill_simplex(initial, 0, S, zeros);
  for (int p = 0; p < L; ++p) fill_simplex(transition, p * L, L, zeros);
  const double tool_zeros = below(3) ? 0 : 0.5;  // tools that cannot switch
  for (int q = 0; q < L; ++q) {
    size_t at = q * per_phase;
    for (auto n : sizes)
      for (int i = 0; i < n; ++i, at += n) fill_simplex(blocks, at, n, tool_zeros);
  }
  fill_logs(phases, scale, impossible), fill_logs(tools, scale, impossible), fill_logs(configs, scale, impossible);

  const Tables tables{L, C, K, static_cast<int64_t>(sizes.size()), sizes.data(), initial.in(), transition.in(), blocks.in()};
  const Video video{T, length, phases.in(), has_tools ? tools.in() : In{}, has_configs ? configs.in() : In{}};
  void* model = r.prepare(tables, true);

  // The oracle: all S states, S x S transitions, numbers of long double's range brought to a sum of one per frame.
  const auto block = [&](int q, int c, int e) {  // P(e | c, q)
    Real x = 1;
    size_t at = q * per_phase;
    int right = C;
    for (auto n : sizes) {
      right /= n;
      x *= blocks.get(at + c / right % n * n + e / right % n);
      at += n * n;
    }
    return x;
  };
  const auto log_emission = [&](int t, int s) {
    const int q = s / C, c = s % C;
    Real x = phases.get(size_t(t) * L + q);
    if (has_configs) x += configs.get(size_t(t) * C + c);
    for (int k = 0; has_tools && k < K; ++k) x += tools.get((size_t(t) * K + k) * 2 + ((c >> (K - 1 - k)) & 1));
    return x;
  };
  std::vector<Real> move(size_t(S) * S);
  for (int a = 0; a < S; ++a)
    for (int b = 0; b < S; ++b) move[size_t(a) * S + b] = transition.get(a / C * L + b / C) * block(b / C, a % C, b % C);
  std::vector<std::vector<Real>> alpha(length), beta(length), seen(length), score(length);
  Real value = 0;
  bool possible = true;
  for (int t = 0; t < length && possible; ++t) {
    seen[t].resize(S), alpha[t].assign(S, 0), score[t].assign(S, -INFINITY);
    Real top = -INFINITY, total = 0;
    for (int s = 0; s < S; ++s) top = fmaxl(top, log_emission(t, s));
    if (top == -INFINITY) top = 0;
    for (int s = 0; s < S; ++s) {
      seen[t][s] = expl(log_emission(t, s) - top);
      if (t == 0) alpha[t][s] = initial.get(s), score[t][s] = logl(alpha[t][s]);
      for (int a = 0; a < S && t; ++a) {
        alpha[t][s] += alpha[t - 1][a] * move[size_t(a) * S + s];
        score[t][s] = fmaxl(score[t][s], score[t - 1][a] + logl(move[size_t(a) * S + s]));
      }
      score[t][s] += log_emission(t, s);
      total += alpha[t][s] *= seen[t][s];
    }
    possible = total > 0;
    value += logl(total) + top;
    for (auto& x : alpha[t]) x /= total;
    for (auto& x : seen[t]) x /= total;
  }
  const double tolerance = d ? 1e-11 : 2e-6;
  compare("log-normalizer", r.log_normalizer(model, video), possible ? value : -INFINITY, 1e-12);

  Array f_phases(size_t(T) * L, d), f_tools(size_t(T) * K * 2, d);
  compare("filter's log-normalizer", r.filter(model, video, {f_phases.out(), f_tools.out()}), possible ? value : -INFINITY, 1e-12);
  Array g_initial(S, d), g_transition(L * L, d), g_blocks(L * per_phase, d), g_phases(size_t(T) * L, d);
  Array g_tools(tools.size, d), g_configs(configs.size, d);
  Gradient g;
  g.tables = below(4);
  g.phases = g_phases.out(), g.initial = g_initial.out(), g.transition = g_transition.out(), g.blocks = g_blocks.out();
  if (has_tools) g.tools = g_tools.out();
  if (has_configs) g.configs = g_configs.out();
  compare("gradient's log-normalizer", r.gradient(model, video, g), possible ? value : -INFINITY, 1e-12);
  std::vector<int32_t> path_phases(T), path_configs(T);
  const double best = r.viterbi(model, video, path_phases.data(), path_configs.data());
  if (possible && length)
    run_stream(r, model, video, L, K, C, f_phases, f_tools, g_phases, g_tools, value);
  r.release(model);
  if (!possible || length == 0) {
    compare("path of an impossible or empty video", best, possible ? 0 : -INFINITY, 0);
    for (size_t i = 0; i < f_phases.size; ++i) compare("impossible", f_phases.get(i), 0, 0), compare("impossible", g_phases.get(i), 0, 0);
    return;
  }

  Real top = -INFINITY, along = 0;
  for (int s = 0; s < S; ++s) top = fmaxl(top, score[length - 1][s]);
  for (int t = 0; t < length; ++t) {
    const int s = path_phases[t] * C + path_configs[t], a = t ? path_phases[t - 1] * C + path_configs[t - 1] : 0;
    along += log_emission(t, s) + logl(t ? move[size_t(a) * S + s] : Real(initial.get(s)));
  }
  compare("path's log-probability", best, top, 1e-12);
  compare("log-probability along the path", best, along, 1e-12);

  Table x_initial(S), x_transition(L * L), x_blocks(L * per_phase);
  for (int t = length - 1; t >= 0; --t) {
    beta[t].assign(S, t + 1 == length);
    if (t + 1 < length) {
      for (int a = 0; a < S; ++a)
        for (int b = 0; b < S; ++b) beta[t][a] += move[size_t(a) * S + b] * seen[t + 1][b] * beta[t + 1][b];
      for (int a = 0; a < S; ++a)
        for (int b = 0; b < S; ++b) {
          // The derivative of each factor of the transition from a to b.
          const Real weight = alpha[t][a] * seen[t + 1][b] * beta[t + 1][b];
          const int p = a / C, q = b / C;
          x_transition[p * L + q] += static_cast<double>(weight * block(q, a % C, b % C));
          size_t at = q * per_phase;
          int right = C;
          for (size_t i = 0; i < sizes.size(); ++i) {
            const int64_t n = sizes[i];
            right /= n;
            const size_t entry = at + a % C / right % n * n + b % C / right % n;
            Real others = weight * transition.get(p * L + q);
            size_t first = q * per_phase;
            for (size_t k = 0, below = C; k < sizes.size(); first += sizes[k] * sizes[k], ++k) {
              below /= sizes[k];
              if (k != i) others *= blocks.get(first + a % C / below % sizes[k] * sizes[k] + b % C / below % sizes[k]);
            }
            x_blocks[entry] += static_cast<double>(others);
            at += n * n;
          }
        }
    }
    Table phase(L), config(C), tool(2 * K);
    Table f_phase(L), f_tool(2 * K);
    for (int s = 0; s < S; ++s) {
      const double w = static_cast<double>(alpha[t][s] * beta[t][s]), f = static_cast<double>(alpha[t][s]);
      phase[s / C] += w, config[s % C] += w, f_phase[s / C] += f;
      for (int k = 0; k < K; ++k) tool[2 * k + ((s % C >> (K - 1 - k)) & 1)] += w, f_tool[2 * k + ((s % C >> (K - 1 - k)) & 1)] += f;
    }
    for (int q = 0; q < L; ++q) {
      compare("phase marginal", g_phases.get(size_t(t) * L + q), phase[q], tolerance);
      compare("filtered phase", f_phases.get(size_t(t) * L + q), f_phase[q], tolerance);
    }
    for (int c = 0; has_configs && c < C; ++c) compare("marginal of a configuration", g_configs.get(size_t(t) * C + c), config[c], tolerance);
    for (int k = 0; k < 2 * K; ++k) {
      if (has_tools) compare("tool marginal", g_tools.get(size_t(t) * K * 2 + k), tool[k], tolerance);
      compare("filtered tool", f_tools.get(size_t(t) * K * 2 + k), f_tool[k], tolerance);
    }
  }
  if (!g.tables) return;
  // What a probability of zero would be worth may need more range than there is.
  const auto counts = [&](const Array& table, size_t i) { return scale < 100 || table.get(i) > 0; };
  for (int s = 0; s < S; ++s)
    if (counts(initial, s)) compare("derivative of initial", g_initial.get(s), seen[0][s] * beta[0][s], tolerance * 10);
  for (int i = 0; i < L * L; ++i)
    if (counts(transition, i)) compare("derivative of transition", g_transition.get(i), x_transition[i], tolerance * 10);
  for (size_t i = 0; i < x_blocks.size(); ++i)
    if (counts(blocks, i)) compare("derivative of blocks", g_blocks.get(i), x_blocks[i], tolerance * 10);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  for (int i = 0; i < atoi(argv[1]); ++i) {
    generator.seed(i);
    run(*ISA());
    if (failed) {
      fprintf(stderr, "in run %d\n", i);
      return 1;
    }
  }
}
