//! The objects of the suite as YAML documents.

/// A pool of all simulated nodes.
pub fn pool(exclusive: bool) -> String {
    let exclusivity = if exclusive { "Device" } else { "Shared" };
    format!(
        "
apiVersion: hone.dev/v1alpha1
kind: DevicePool
metadata: {{name: simulated}}
spec: {{kind: CPU, nodeSelector: {{type: simulated}}, exclusivity: {exclusivity}}}
"
    )
}

/// A compilation that no other equals, so that none is found in the cache.
pub fn compilation(number: usize) -> String {
    format!(
        "---
apiVersion: hone.dev/v1alpha1
kind: ModelCompilation
metadata: {{name: c{number}}}
spec:
  model: {{uri: 's3://models/{number}.onnx', digest: 'sha256:{number:064x}'}}
  targets: [{{name: main, pool: simulated}}]
  output: {{uri: 's3://artifacts/{number}'}}
"
    )
}

/// A Job whose pod has the form of a worker's.
pub fn job(number: usize, exclusive: bool) -> String {
    let affinity = "
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, namespaceSelector: {}, labelSelector: {matchLabels: {plain: 'true'}}}";
    let affinity = if exclusive { affinity } else { "" };
    format!(
        "---
apiVersion: batch/v1
kind: Job
metadata: {{name: j{number}}}
spec:
  backoffLimit: 3
  podReplacementPolicy: Failed
  podFailurePolicy:
    rules:
    - {{action: FailJob, onExitCodes: {{containerName: worker, operator: In, values: [1, 2]}}}}
  template:
    metadata: {{labels: {{plain: 'true'}}}}
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      nodeSelector: {{type: simulated}}{affinity}
      containers:
      - name: worker
        image: simulated
        resources: {{requests: {{cpu: '1', memory: 2Gi}}}}
        volumeMounts: [{{name: scratch, mountPath: /scratch}}]
      volumes: [{{name: scratch, emptyDir: {{sizeLimit: 20Gi}}}}]
"
    )
}
