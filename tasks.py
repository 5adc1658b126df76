"""Every command of ftbuild, in the groups that `invoke --list` shows."""

from benchmarks import command as benchmarks
from ftbuild.cli import (
    cells,
    ci,
    clean,
    comparing,
    development,
    front,
    machine,
    model_artifacts,
    models,
    nightly,
    program,
    publishing,
    serving,
    sources,
    unittests,
)
from testing.mutation import command as mutation

namespace = program.Namespace(
    {
        "Build and test images": (
            cells.matrix,
            cells.build,
            cells.verify,
            cells.smoke,
            unittests.unittest,
            cells.base,
        ),
        "Publish images": (publishing.publish, publishing.which, publishing.stage, publishing.pull),
        "Serve a model": (
            models.plan_model,
            models.convert,
            models.model_repo,
            model_artifacts.push,
            model_artifacts.pull,
            serving.serve,
            serving.compose,
            serving.k8s,
            serving.kserve,
            serving.dashboard,
            serving.sif,
            front.front,
            serving.client_test,
            comparing.compare,
        ),
        "Maintain the matrix": (
            nightly.nightly,
            sources.audit,
            sources.audit_holes,
            sources.patches,
            sources.lock,
            sources.bundle,
        ),
        "Check this machine": (machine.doctor, machine.demo_command, clean.clean),
        "Develop ftbuild": (
            development.test,
            mutation.mutate,
            benchmarks.bench,
            development.schema,
            ci.ci,
        ),
    }
)
program.adjust(namespace)
