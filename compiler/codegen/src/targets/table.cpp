// LLVM's table of processors and features, which its C interface does not return.

#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include <memory>
#include <string>

// Takes one name that ends in zero and lives until the call returns.
typedef void (*Take)(void *list, const char *name);

static std::unique_ptr<llvm::MCSubtargetInfo>
subtarget(const char *triple, const char *cpu, const char *features) {
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  return std::unique_ptr<llvm::MCSubtargetInfo>(
      target->createMCSubtargetInfo(triple, cpu, features));
}

// Gives the names of all processors of a triple; returns whether LLVM has the triple.
extern "C" bool hone_processors(const char *triple, Take take, void *list) {
  auto info = subtarget(triple, "", "");
  if (!info)
    return false;
  for (const auto &entry : info->getAllProcessorDescriptions())
    take(list, entry.Key);
  return true;
}

// Gives the names of all features of a triple, or those that a known processor has under known
// features; whether LLVM has the triple.
extern "C" bool hone_features(const char *triple, const char *cpu, const char *features,
                              bool all, Take take, void *list) {
  auto info = subtarget(triple, cpu, features);
  if (!info)
    return false;
  for (const auto &entry : info->getAllProcessorFeatures())
    if (all || info->getFeatureBits().test(entry.Value))
      take(list, entry.Key);
  return true;
}
