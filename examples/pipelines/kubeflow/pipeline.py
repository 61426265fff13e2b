"""A pipeline that compiles a model: python pipeline.py writes pipeline.yaml (pip install kfp)."""

from pathlib import Path

from kfp import compiler, components, dsl

compile_model = components.load_component_from_file(str(Path(__file__).with_name("component.yaml")))

MANIFEST = """
apiVersion: hone.dev/v1alpha1
kind: ModelCompilation
metadata: {name: digits}
spec:
  model:
    uri: s3://models/digits.onnx
    digest: sha256:57d746dde781a68d4cc824c949550c073f56d435407172ae55079366b103b43b
    credentialsSecretRef: {name: store}
  targets: [{name: main, pool: amd64}]
  output: {uri: s3://artifacts/digits, credentialsSecretRef: {name: store}}
"""


@dsl.component
def use(artifact: str, digest: str, latency: str):
    """Stands for what comes next, such as a roll-out."""
    print(artifact, digest, latency)


@dsl.pipeline(name="compile-a-model")
def pipeline(manifest: str = MANIFEST):
    """Compiles, then uses the artifact."""
    compiled = compile_model(manifest=manifest).set_caching_options(False)
    results = compiled.outputs
    use(artifact=results["artifact"], digest=results["digest"], latency=results["latency"])


if __name__ == "__main__":
    compiler.Compiler().compile(pipeline, "pipeline.yaml")
