// Loads a GPT as the backend does (FT v5.3 ParallelGptTritonModel.cc): gpt_experts <folder> <fp32 or fp16>
// <int8_mode> <GPUs> <pipeline stages>. Prints "file <name> <numbers>" for each file that a GPU reads, and "experts
// <how many> <how many for a token> <layers>"; "refused <why>" where the loader throws.
#include <cstdio>
#include <string>

#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGptDecoderLayerWeight.cc"
#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGptWeight.cc"
#include "src/fastertransformer/triton_backend/multi_gpu_gpt/ParallelGptTritonModel.cc"

template<typename T>
int load(const std::string& folder, const int int8_mode, const int gpus, const int stages)
{
    try {
        ParallelGptTritonModel<T> model(gpus, stages, 0, folder, int8_mode);
        const std::vector<ft::NcclParam> ranks(gpus * stages);
        for (int rank = 0; rank < gpus * stages; rank++) {
            model.createSharedWeights(rank, rank);
            model.createModelInstance(rank, rank, nullptr, {ranks, ranks});
        }
    }
    catch (const std::exception& refused) {
        std::printf("refused %s\n", refused.what());
    }
    return 0;
}

int main(int, char** given)
{
    const int  int8_mode = std::stoi(given[3]), gpus = std::stoi(given[4]), stages = std::stoi(given[5]);
    const bool whole = std::string(given[2]) == "fp32";
    return whole ? load<float>(given[1], int8_mode, gpus, stages) : load<half>(given[1], int8_mode, gpus, stages);
}
