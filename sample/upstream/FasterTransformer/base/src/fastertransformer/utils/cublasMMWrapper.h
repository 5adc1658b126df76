// Shapes of matrices, and nothing of cuBLAS in this miniature.
#pragma once

#include <cstddef>

namespace fastertransformer {

using MatrixShape = std::array<size_t, 2>;

size_t elements(const MatrixShape& shape);

}  // namespace fastertransformer
