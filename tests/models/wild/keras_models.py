"""Networks of Keras with seeded weights, converted by tf2onnx: channels last, with its transpositions."""

import keras
import tensorflow
import tf2onnx
from keras import layers


def application(build, size, **options):
    return lambda: getattr(keras.applications, build)(weights=None, input_shape=(size, size, 3), classes=10, **options)


def words():
    return keras.Sequential([
        layers.Input((None,), dtype="int32"), layers.Embedding(200, 24), layers.Bidirectional(layers.LSTM(16, return_sequences=True)),
        layers.GRU(16), layers.Dense(5, activation="softmax")])


def attention():
    x = layers.Input((None, 32))
    y = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 8)(x, x))
    return keras.Model(x, layers.GlobalAveragePooling1D()(layers.Dense(32, activation="relu")(y)))


def convolutions():
    return keras.Sequential([
        layers.Input((32, 32, 3)), layers.SeparableConv2D(16, 3, padding="same", activation="relu6"),
        layers.Conv2D(24, 3, strides=2, padding="same", dilation_rate=1), layers.BatchNormalization(),
        layers.LeakyReLU(), layers.Conv2DTranspose(8, 3, strides=2, padding="same"), layers.UpSampling2D(interpolation="bilinear"),
        layers.Conv2D(2, 1, activation="sigmoid")])


MODELS = {
    "mobilenet": application("MobileNet", 64, alpha=0.25),
    "mobilenet_v3": application("MobileNetV3Small", 64),
    "words": words,
    "attention": attention,
    "convolutions": convolutions,
}


def make(target, name, opset):
    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    shape = [tensorflow.TensorSpec(tensor.shape, tensor.dtype, name="x") for tensor in model.inputs]
    called = tensorflow.function(lambda x: model(x, training=False), input_signature=shape)
    tf2onnx.convert.from_function(called, input_signature=shape, opset=int(opset), output_path=str(target))
