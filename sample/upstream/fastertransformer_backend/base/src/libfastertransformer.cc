// The Triton backend: loads a model when the server does and answers its requests.
#include <chrono>
#include <exception>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>

#include <sys/stat.h>

#include "src/fastertransformer/triton_backend/transformer_triton_backend.hpp"
#include "triton/backend/backend_common.h"
#include "triton/common/triton_json.h"

namespace triton { namespace backend { namespace fastertransformer_backend {

namespace {

struct ModelState {
    std::unique_ptr<AbstractTransformerModel> model;
    bool is_decoupled;  // send a response for each token
};

TRITONSERVER_Error* Failure(TRITONSERVER_Error_Code code, const std::string& message)
{
    return TRITONSERVER_ErrorNew(code, message.c_str());
}

uint64_t Now()
{
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

bool Exists(const std::string& path)
{
    struct stat status;
    return stat(path.c_str(), &status) == 0;
}

std::string Parameter(const common::JsonValue& config, const std::string& name, const std::string& otherwise)
{
    const common::JsonValue& value = config["parameters"][name]["string_value"];
    return value.kind == common::JsonValue::Kind::kString ? value.text : otherwise;
}

TRITONSERVER_Error* ReadConfig(TRITONBACKEND_Model* model, common::JsonValue* config)
{
    TRITONSERVER_Message* message = nullptr;
    const char* text = nullptr;
    size_t size = 0;
    RETURN_IF_ERROR(TRITONBACKEND_ModelConfig(model, 1, &message));
    TRITONSERVER_Error* error = TRITONSERVER_MessageSerializeToJson(message, &text, &size);
    if (error == nullptr) {
        *config = common::JsonReader::parse(std::string(text, size));
    }
    Ignore(TRITONSERVER_MessageDelete(message));
    return error;
}

// Where the weights are: `model_checkpoint_path`, else VERSION/{tensor_para_size}-gpu in the model's folder
// where that exists, else nowhere.
TRITONSERVER_Error* FindCheckpoint(
    TRITONBACKEND_Model* model, const common::JsonValue& config, ModelOptions* options)
{
    TRITONBACKEND_ArtifactType artifact = TRITONBACKEND_ARTIFACT_FILESYSTEM;
    const char* folder = nullptr;
    uint64_t version = 0;
    RETURN_IF_ERROR(TRITONBACKEND_ModelRepository(model, &artifact, &folder));
    RETURN_IF_ERROR(TRITONBACKEND_ModelVersion(model, &version));
    const std::string beside = std::string(folder) + "/" + std::to_string(version) + "/"
                               + std::to_string(options->tensor_para_size) + "-gpu";
    options->checkpoint = Parameter(config, "model_checkpoint_path", Exists(beside) ? beside : "");
    return nullptr;
}

TRITONSERVER_Error* LoadModel(TRITONBACKEND_Model* model)
{
    common::JsonValue config;
    ModelOptions options;
    RETURN_IF_ERROR(ReadConfig(model, &config));
    options.tensor_para_size = std::stoi(Parameter(config, "tensor_para_size", "1"));
    options.on_gpu = Parameter(config, "device", "cpu") == "gpu";
    RETURN_IF_ERROR(FindCheckpoint(model, config, &options));
    std::unique_ptr<ModelState> state(new ModelState());
    state->model = AbstractTransformerModel::create(Parameter(config, "model_type", "GPT"), options);
    state->is_decoupled = config["model_transaction_policy"]["decoupled"].boolean;
    LOG_MESSAGE(TRITONSERVER_LOG_INFO, state->model->toString());
    return TRITONBACKEND_ModelSetState(model, state.release());
}

TRITONSERVER_Error* WantedOutputs(TRITONBACKEND_Request* request, std::set<std::string>* names)
{
    uint32_t count = 0;
    RETURN_IF_ERROR(TRITONBACKEND_RequestOutputCount(request, &count));
    for (uint32_t index = 0; index < count; ++index) {
        const char* name = nullptr;
        RETURN_IF_ERROR(TRITONBACKEND_RequestOutputName(request, index, &name));
        names->insert(name);
    }
    return nullptr;
}

TRITONSERVER_Error* WriteOutputs(
    TRITONBACKEND_Response* response, const TensorMap& outputs, const std::set<std::string>& wanted)
{
    for (const auto& output : outputs) {
        const Tensor& tensor = output.second;
        if (wanted.count(output.first) != 0) {
            RETURN_IF_ERROR(WriteOutput(
                response, output.first, tensor.type, tensor.shape, tensor.data.data(), tensor.data.size()));
        }
    }
    return nullptr;
}

// Sends the outputs so far in `response` and puts a new response in its place.
TRITONSERVER_Error* Stream(
    TRITONBACKEND_Request* request, TRITONBACKEND_Response** response, const TensorMap& outputs,
    const std::set<std::string>& wanted)
{
    RETURN_IF_ERROR(WriteOutputs(*response, outputs, wanted));
    TRITONBACKEND_Response* const filled = *response;
    *response = nullptr;
    RETURN_IF_ERROR(TRITONBACKEND_ResponseSend(filled, 0, nullptr));
    return TRITONBACKEND_ResponseNew(response, request);
}

// Makes the response, and fills it.
TRITONSERVER_Error* Answer(
    const ModelState& state, TRITONBACKEND_Request* request, TRITONBACKEND_Response** response)
{
    std::vector<InputTensor> inputs;
    std::set<std::string> wanted;
    RETURN_IF_ERROR(TRITONBACKEND_ResponseNew(response, request));
    RETURN_IF_ERROR(ReadInputs(request, &inputs));
    RETURN_IF_ERROR(WantedOutputs(request, &wanted));
    TensorMap tensors;
    for (InputTensor& input : inputs) {
        tensors.emplace(input.name, Tensor{input.type, input.shape, std::move(input.data)});
    }
    TRITONSERVER_Error* error = nullptr;
    TokenGenerated token_generated;
    if (state.is_decoupled) {
        token_generated = [&](const TensorMap& outputs) {
            if (error == nullptr) {
                error = Stream(request, response, outputs, wanted);
            }
        };
    }
    const TensorMap outputs = state.model->forward(tensors, token_generated);
    RETURN_IF_ERROR(error);
    return WriteOutputs(*response, outputs, wanted);
}

// A failure as an error of the server: an exception must not leave this library, it would end the server.
TRITONSERVER_Error* TryAnswer(
    const ModelState& state, TRITONBACKEND_Request* request, TRITONBACKEND_Response** response)
{
    try {
        return Answer(state, request, response);
    } catch (const std::invalid_argument& error) {
        return Failure(TRITONSERVER_ERROR_INVALID_ARG, error.what());
    } catch (const std::exception& error) {
        return Failure(TRITONSERVER_ERROR_INTERNAL, error.what());
    }
}

void Serve(TRITONBACKEND_ModelInstance* instance, const ModelState& state, TRITONBACKEND_Request* request)
{
    const uint64_t start = Now();
    TRITONBACKEND_Response* response = nullptr;
    TRITONSERVER_Error* error = TryAnswer(state, request, &response);
    const bool success = error == nullptr;
    const uint64_t end = Now();
    if (response != nullptr) {
        Ignore(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    }
    Ignore(error);
    Ignore(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, success, start, start, end, end));
    Ignore(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*)
{
    uint32_t major = 0;
    uint32_t minor = 0;
    RETURN_IF_ERROR(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != TRITONBACKEND_API_VERSION_MAJOR || minor < TRITONBACKEND_API_VERSION_MINOR) {
        return Failure(
            TRITONSERVER_ERROR_UNSUPPORTED,
            "built for a server with backend API " + std::to_string(TRITONBACKEND_API_VERSION_MAJOR) + "."
                + std::to_string(TRITONBACKEND_API_VERSION_MINOR));
    }
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model)
{
    try {
        return LoadModel(model);
    } catch (const std::exception& error) {
        return Failure(TRITONSERVER_ERROR_UNAVAILABLE, error.what());
    }
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model)
{
    void* state = nullptr;
    RETURN_IF_ERROR(TRITONBACKEND_ModelState(model, &state));
    delete static_cast<ModelState*>(state);
    return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t request_count)
{
    TRITONBACKEND_Model* model = nullptr;
    void* state = nullptr;
    RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceModel(instance, &model));
    RETURN_IF_ERROR(TRITONBACKEND_ModelState(model, &state));
    for (uint32_t index = 0; index < request_count; ++index) {
        Serve(instance, *static_cast<ModelState*>(state), requests[index]);
    }
    return nullptr;
}

}  // extern "C"

}}}  // namespace triton::backend::fastertransformer_backend
