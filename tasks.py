"""Every command of both products, in the groups that `invoke --list` shows: images first, then serving."""

from benchmarks import command as benchmarks
from ftbuild.cli import (
    cells,
    ci,
    clean,
    development,
    gates,
    machine,
    model_artifacts,
    models,
    nightly,
    program,
    publishing,
    sources,
)
from ftserve.cli import client_test, comparing, front, server, targets
from testing.mutation import command as mutation

namespace = program.Namespace(
    {
        "Build and test images": (
            cells.matrix,
            cells.build,
            gates.verify,
            gates.smoke,
            gates.unittest,
            cells.base,
        ),
        "Publish images": (
            publishing.publish,
            publishing.which,
            publishing.rebuild,
            publishing.stage,
            publishing.pull,
        ),
        "Maintain the matrix": (
            nightly.nightly,
            sources.audit,
            sources.audit_holes,
            sources.audit_feed,
            sources.patches,
            sources.lock,
            sources.bundle,
        ),
        "Make a model repository": (
            models.plan_model,
            models.convert,
            models.model_repo,
            model_artifacts.push,
            model_artifacts.pull,
        ),
        "Serve a model repository": (
            server.serve,
            targets.compose,
            targets.k8s,
            targets.kserve,
            targets.dashboard,
            targets.sif,
            front.front,
            client_test.client_test,
            comparing.compare,
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
