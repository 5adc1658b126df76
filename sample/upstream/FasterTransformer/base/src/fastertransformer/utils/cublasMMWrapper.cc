#include "src/fastertransformer/utils/cublasMMWrapper.h"

namespace fastertransformer {

size_t elements(const MatrixShape& shape)
{
    return shape[0] * shape[1];
}

}  // namespace fastertransformer
