// Small matrix products on tiles that live in cache: the inner loops of attention.
#pragma once

#include <cstdint>
#include <cstring>

namespace consist::cpu {

#if defined(__AVX512F__)
inline constexpr int vector_floats = 16;
#elif defined(__AVX__)
inline constexpr int vector_floats = 8;
#else
inline constexpr int vector_floats = 4;
#endif
using Vector = float __attribute__((vector_size(vector_floats * sizeof(float)), aligned(4), may_alias));

/// Columns of tiles are padded to a multiple of this.
constexpr std::int64_t pad_columns(std::int64_t n) {
  return (n + vector_floats - 1) / vector_floats * vector_floats;
}

/// A [m, k] with element (i, p) at a[i·row + p·column].
struct TileA {
  const float* data;
  std::int64_t row, column;
};

/// `Rows` rows and `Vectors` vectors of C: C (+)= A B, with B [k, n] and C [m, n] row-major.
template <int Rows, int Vectors>
inline void micro_product(std::int64_t k, TileA a, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                          bool accumulate) {
  Vector sum[Rows][Vectors];
  for (int i = 0; i < Rows; ++i) {
    for (int v = 0; v < Vectors; ++v) {
      sum[i][v] = accumulate ? *reinterpret_cast<const Vector*>(c + i * ldc + v * vector_floats) : Vector{};
    }
  }
  for (std::int64_t p = 0; p < k; ++p) {
    Vector bv[Vectors];
    for (int v = 0; v < Vectors; ++v) bv[v] = *reinterpret_cast<const Vector*>(b + p * ldb + v * vector_floats);
    for (int i = 0; i < Rows; ++i) {
      const float ai = a.data[i * a.row + p * a.column];
      for (int v = 0; v < Vectors; ++v) sum[i][v] += ai * bv[v];
    }
  }
  for (int i = 0; i < Rows; ++i) {
    for (int v = 0; v < Vectors; ++v) *reinterpret_cast<Vector*>(c + i * ldc + v * vector_floats) = sum[i][v];
  }
}

/// micro_product of the `m` rows, at most `Rows`, that are left.
template <int Rows, int Vectors>
inline void last_rows(std::int64_t m, std::int64_t k, TileA a, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                      bool accumulate) {
  if constexpr (Rows > 0) {
    if (m == Rows)
      micro_product<Rows, Vectors>(k, a, b, ldb, c, ldc, accumulate);
    else
      last_rows<Rows - 1, Vectors>(m, k, a, b, ldb, c, ldc, accumulate);
  }
}

template <int Vectors>
inline void tile_columns(std::int64_t m, std::int64_t k, TileA a, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                         bool accumulate) {
  constexpr int rows = 6;
  std::int64_t i = 0;
  for (; i + rows <= m; i += rows) {
    micro_product<rows, Vectors>(k, {a.data + i * a.row, a.row, a.column}, b, ldb, c + i * ldc, ldc, accumulate);
  }
  const TileA rest{a.data + i * a.row, a.row, a.column};
  last_rows<rows - 1, Vectors>(m - i, k, rest, b, ldb, c + i * ldc, ldc, accumulate);
}

/// C (+)= A B; n must be a multiple of vector_floats.
inline void tile_product(std::int64_t m, std::int64_t n, std::int64_t k, TileA a, const float* b, std::int64_t ldb, float* c,
                         std::int64_t ldc, bool accumulate) {
  constexpr int wide = vector_floats == 16 ? 4 : 2;  // what the registers hold beside six rows
  std::int64_t j = 0;
  for (; j + wide * vector_floats <= n; j += wide * vector_floats)
    tile_columns<wide>(m, k, a, b + j, ldb, c + j, ldc, accumulate);
  for (; j < n; j += vector_floats) tile_columns<1>(m, k, a, b + j, ldb, c + j, ldc, accumulate);
}

}  // namespace consist::cpu
