#pragma once

#include "stub.h"

namespace ft = fastertransformer;

struct AbstractTransformerModelInstance {
    virtual ~AbstractTransformerModelInstance() = default;
};

struct AbstractTransformerModel {
    static std::shared_ptr<AbstractTransformerModel> createGptModel(std::string inifile);

    virtual ~AbstractTransformerModel() = default;
    virtual void createCustomComms(std::vector<std::shared_ptr<ft::AbstractCustomComm>>*, int) = 0;
    virtual std::unique_ptr<AbstractTransformerModelInstance>
    createModelInstance(int, int, cudaStream_t, std::pair<std::vector<ft::NcclParam>, std::vector<ft::NcclParam>>,
                        std::shared_ptr<ft::AbstractCustomComm> = nullptr) = 0;
    virtual void        createSharedWeights(int, int) = 0;
    virtual std::string toString() = 0;
    virtual int         getTensorParaSize() = 0;
    virtual int         getPipelineParaSize() = 0;
};
