"""Pipelines of scikit-learn and trees of LightGBM, trained on seeded data and converted by skl2onnx and onnxmltools.

MODELS has for each name a function that returns the trained model, the types of its inputs for the converter, and the
converter's options. Columns of numbers are `x`, others have names of their own.
"""

import numpy as np
import onnx
import skl2onnx
from skl2onnx.common.data_types import (
    DictionaryType,
    FloatTensorType,
    Int64TensorType,
    StringTensorType,
)
from sklearn import (
    cluster,
    compose,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_extraction,
    gaussian_process,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

COLORS = np.array(["red", "green", "blue", "grey"])
CITIES = np.array(["Oslo", "Lima", "Rome"])
SENTENCES = np.array([
    "the cat sat on the mat", "a dog barks at night", "cats and dogs are friends", "the night is dark",
    "stock markets fall sharply", "markets rise on good news", "bad news for the stock", "friends meet at night",
] * 6)


def data(classes=3, rows=180, columns=6):
    random = np.random.default_rng(5)
    x = random.standard_normal((rows, columns)).astype(np.float32)
    y = (x @ random.standard_normal((columns, classes)) + 0.3 * x[:, :1] * x[:, 1:2]).argmax(1)
    return x, y


def numbers(model, classes=3, continuous=False, options=None, names=None):
    """A model of six numbers; `names` are the classes' names where they are strings."""

    def make():
        x, y = data(classes)
        y = x[:, 0] * 2 + np.sin(x[:, 1]) if continuous else names[y] if names is not None else y
        return model.fit(x, y), [("x", FloatTensorType([None, 6]))], {id(model): options} if options else None

    return make



def columns():
    x, y = data(2)
    random = np.random.default_rng(6)
    words = np.stack([random.choice(COLORS, len(x)), random.choice(CITIES, len(x))], 1).astype(object)
    both = np.concatenate([x[:, :3].astype(object), words], 1)
    prepared = compose.ColumnTransformer([
        ("numbers", pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler()), [0, 1, 2]),
        ("words", preprocessing.OneHotEncoder(handle_unknown="ignore"), [3, 4]),
    ])
    model = pipeline.Pipeline([("prepare", prepared), ("trees", ensemble.RandomForestClassifier(12, random_state=0))])
    model.fit(both, y)
    inputs = [(name, FloatTensorType([None, 1])) for name in "abc"]
    return model, [*inputs, ("color", StringTensorType([None, 1])), ("city", StringTensorType([None, 1]))], None


def ordinal():
    random = np.random.default_rng(7)
    words = np.stack([random.choice(COLORS, 90), random.choice(CITIES, 90)], 1).astype(object)
    y = (words[:, 0] == "red").astype(int)
    model = pipeline.make_pipeline(preprocessing.OrdinalEncoder(), tree.DecisionTreeClassifier(max_depth=4))
    return model.fit(words, y), [("words", StringTensorType([None, 2]))], None


def sentences(vectorizer, model):
    def make():
        y = np.arange(len(SENTENCES)) % 8 // 4
        whole = pipeline.make_pipeline(vectorizer, model)
        return whole.fit(SENTENCES, y), [("text", StringTensorType([None]))], None

    return make


def dictionary():
    rows = [{"age": float(n), "height": 100.0 + n * 3 % 7} for n in range(40)]
    model = pipeline.make_pipeline(feature_extraction.DictVectorizer(sparse=False), linear_model.LinearRegression())
    y = [row["age"] * 2 + row["height"] for row in rows]
    return model.fit(rows, y), [("row", DictionaryType(StringTensorType([1]), FloatTensorType([1])))], None


def imputed():
    """Numbers that are missing, by those of the nearest rows."""
    x, _ = data(3)
    x = x.astype(np.float32)
    x[np.random.default_rng(9).random(x.shape) < 0.1] = np.nan
    return impute.KNNImputer(n_neighbors=3).fit(x), [("x", FloatTensorType([None, 6]))], None


def integers():
    random = np.random.default_rng(8)
    x = random.integers(0, 4, (120, 3))
    model = pipeline.make_pipeline(preprocessing.OneHotEncoder(), linear_model.Ridge())
    return model.fit(x, x.sum(1) * 1.5), [("x", Int64TensorType([None, 3]))], None


def stacked():
    parts = [("tree", tree.DecisionTreeClassifier(max_depth=4, random_state=0)), ("bayes", naive_bayes.GaussianNB())]
    return ensemble.StackingClassifier(parts, linear_model.LogisticRegression())


def voting():
    parts = [("line", linear_model.LogisticRegression()), ("tree", tree.DecisionTreeClassifier(max_depth=4))]
    return ensemble.VotingClassifier(parts, voting="soft", flatten_transform=False)


PLAIN = {"zipmap": False}
P, L = preprocessing, linear_model
MODELS = {
    "logistic_maps": numbers(pipeline.make_pipeline(P.StandardScaler(), L.LogisticRegression())),
    "logistic_strings": numbers(L.LogisticRegression(), names=COLORS, options=PLAIN),
    "logistic_columns": numbers(L.LogisticRegression(), options={"zipmap": "columns"}),
    "linear": numbers(pipeline.make_pipeline(P.RobustScaler(), P.PolynomialFeatures(2), L.Ridge()), continuous=True),
    "forest": numbers(ensemble.RandomForestClassifier(20, random_state=0), options=PLAIN),
    "forest_regressor": numbers(ensemble.RandomForestRegressor(20, random_state=0), continuous=True),
    "boosting": numbers(ensemble.GradientBoostingClassifier(n_estimators=12, random_state=0), options=PLAIN),
    "svc": numbers(svm.SVC(probability=True, random_state=0), options=PLAIN),
    "svc_polynomial": numbers(svm.SVC(kernel="poly", degree=2), classes=2, options=PLAIN),
    "svr": numbers(svm.SVR(), continuous=True),
    "descent": numbers(pipeline.make_pipeline(P.MinMaxScaler(), L.SGDClassifier(loss="log_loss", random_state=0))),
    "one_class": numbers(svm.OneClassSVM(nu=0.2)),
    "nearest": numbers(neighbors.KNeighborsClassifier(4), options=PLAIN),
    "nearest_regressor": numbers(neighbors.KNeighborsRegressor(3, weights="distance"), continuous=True),
    "gaussian_process": numbers(gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.RBF(2.0), alpha=0.1),
                                continuous=True),
    "perceptron": numbers(pipeline.make_pipeline(P.StandardScaler(), neural_network.MLPClassifier((16, 8), max_iter=60,
                          random_state=0)), options=None),
    "bayes": numbers(naive_bayes.GaussianNB(), options=PLAIN),
    "clusters": numbers(cluster.KMeans(4, n_init=2, random_state=0)),
    "components": numbers(pipeline.make_pipeline(decomposition.PCA(4), discriminant_analysis.LinearDiscriminantAnalysis())),
    "isolation": numbers(ensemble.IsolationForest(n_estimators=12, random_state=0)),
    "bins": numbers(pipeline.make_pipeline(P.KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"),
                    L.LogisticRegression()), classes=2),
    "adaboost": numbers(ensemble.AdaBoostClassifier(n_estimators=8, random_state=0), options=PLAIN),
    "stacked": numbers(stacked(), options=PLAIN),
    "voting": numbers(voting(), options=PLAIN),
    "quantiles": numbers(pipeline.make_pipeline(P.PowerTransformer(), P.Normalizer(), L.ElasticNet(0.01)), continuous=True),
    "columns": columns,
    "ordinal": ordinal,
    "words": sentences(feature_extraction.text.TfidfVectorizer(), L.LogisticRegression()),
    "letters": sentences(feature_extraction.text.CountVectorizer(ngram_range=(1, 2)), naive_bayes.MultinomialNB()),
    "characters": sentences(feature_extraction.text.TfidfVectorizer(analyzer="char", ngram_range=(1, 3)),
                            svm.SVC(kernel="linear")),
    "dictionary": dictionary,
    "integers": integers,
    "imputed": imputed,
}


def lightgbm(name, target):
    import lightgbm as light
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType as Floats

    x, y = data(3)
    if name == "lightgbm":
        model = light.LGBMClassifier(n_estimators=12, verbose=-1, random_state=0).fit(x, y)
    else:
        model = light.LGBMRegressor(n_estimators=12, verbose=-1, random_state=0).fit(x, x[:, 0] * 2 + x[:, 1])
    made = onnxmltools.convert_lightgbm(model, initial_types=[("x", Floats([None, 6]))], target_opset=15)
    target.write_bytes(made.SerializeToString())


def make(target, name):
    if name.startswith("lightgbm"):
        return lightgbm(name, target)
    model, inputs, options = MODELS[name]()
    made = skl2onnx.to_onnx(model, initial_types=inputs, options=options, target_opset={"": 18, "ai.onnx.ml": 3})
    for node in made.graph.node:
        if node.op_type == "StringNormalizer":
            # onnxruntime insists on the locale that it takes otherwise, which small machines do not have.
            kept = [own for own in node.attribute if own.name != "locale"]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("locale", "C")])
    target.write_bytes(made.SerializeToString())
